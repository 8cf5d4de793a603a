#include "worker_runtime/arithmetic/int8_blocks.h"

#include "worker_runtime/arithmetic/wire_kernels.h"
#include "worker_runtime/core/bucket_plan.h"

namespace muster::runtime {

namespace {

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::size_t int8_piece_elements(std::size_t bucket_elements, std::size_t world) {
    return round_up((bucket_elements + world - 1) / world, int8_block);
}

std::size_t int8_piece_bytes(std::size_t elements) {
    return round_up(sizeof(float) * (1 + elements / int8_block) + elements, gradient_alignment_bytes);
}

float quantise(const float* values, float factor, std::size_t count, float* lost, std::int8_t* codes) {
    return wire_kernels().quantise(values, factor, count, lost, codes);
}

void add_scaled(float* sums, const std::int8_t* codes, std::size_t count, float factor) {
    wire_kernels().add_scaled(sums, codes, count, factor);
}

void dequantise(const std::int8_t* codes, std::size_t count, float scale, float* values) {
    wire_kernels().dequantise(codes, count, scale, values);
}

}  // namespace muster::runtime
