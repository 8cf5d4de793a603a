#include <cstddef>
#include <cstdint>

namespace {
std::size_t narrow_f16_vectors(const float* /*from*/, std::uint16_t* /*to*/, std::size_t /*count*/) {
    return 0;
}
std::size_t widen_f16_vectors(const std::uint16_t* /*from*/, float* /*to*/, std::size_t /*count*/) {
    return 0;
}
}  // namespace

#include "worker_runtime/arithmetic/wire_kernels_body.h"

namespace muster::runtime {
constexpr WireKernels wire_scalar = these_kernels;
}  // namespace muster::runtime
