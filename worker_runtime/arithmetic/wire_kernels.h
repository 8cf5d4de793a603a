// The arithmetic of compressed wires on arrays in host memory, for each instruction set, all with the same bits. The
// engine calls convert() and int8_blocks.h; tests compare the sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_runtime/arithmetic/instruction_set.h"

namespace muster::runtime {

/// Arrays must not overlap. convert() and int8_blocks.h document the functions.
struct WireKernels {
    void (*narrow_bf16)(const float* from, std::uint16_t* to, std::size_t count);
    void (*narrow_f16)(const float* from, std::uint16_t* to, std::size_t count);
    void (*widen_bf16)(const std::uint16_t* from, float* to, std::size_t count);
    void (*widen_f16)(const std::uint16_t* from, float* to, std::size_t count);
    float (*quantise)(const float* values, float factor, std::size_t count, float* lost, std::int8_t* codes);
    void (*add_scaled)(float* sums, const std::int8_t* codes, std::size_t count, float factor);
    void (*dequantise)(const std::int8_t* codes, std::size_t count, float scale, float* values);
};

/// For every processor of the architecture.
extern const WireKernels wire_scalar;
#if defined(__x86_64__)
// Only for processors with these instructions: see supports().
extern const WireKernels wire_avx2;
extern const WireKernels wire_avx512;
#endif

/// Returns the kernels for chosen_instruction_set().
const WireKernels& wire_kernels();

}  // namespace muster::runtime
