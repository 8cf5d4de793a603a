#include <cstring>

#include "rendezvous/base/check.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/arithmetic/wire_kernels.h"

namespace muster::runtime {

namespace {

bool is_half(DataType type) {
    return type == DataType::f16 || type == DataType::bf16;
}

}  // namespace

void convert(const ConstBuffer& from, const Buffer& to) {
    MUSTER_CHECK(from.count == to.count, from.count, to.count);
    const std::size_t count = from.count;
    const auto& kernels = wire_kernels();
    if (from.type == DataType::f32 && is_half(to.type)) {
        const auto narrow = to.type == DataType::bf16 ? kernels.narrow_bf16 : kernels.narrow_f16;
        narrow(static_cast<const float*>(from.data), static_cast<std::uint16_t*>(to.data), count);
    } else if (is_half(from.type) && to.type == DataType::f32) {
        const auto widen = from.type == DataType::bf16 ? kernels.widen_bf16 : kernels.widen_f16;
        widen(static_cast<const std::uint16_t*>(from.data), static_cast<float*>(to.data), count);
    } else {
        MUSTER_CHECK(from.type == to.type, name(from.type), name(to.type));
        if (count > 0) std::memcpy(to.data, from.data, to.size_bytes());
    }
}

}  // namespace muster::runtime
