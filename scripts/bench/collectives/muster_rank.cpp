// One rank of muster's own all-reduce, under `muster`. --type f32|f16|bf16; MUSTER_TRANSPORT chooses what carries it.
#include <cstdint>
#include <string>

#include "muster/context.h"
#include "scripts/bench/collectives/measure.h"

namespace {

void must(const muster::Result<void>& result) {
    if (result) return;
    std::fprintf(stderr, "%s\n", result.error().context.c_str());
    std::exit(1);
}

/// Small whole numbers are exact in both; their bits are those of an f32 cut short, or put together by hand.
std::uint16_t bits_of(muster::DataType type, float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (type == muster::DataType::bf16) return static_cast<std::uint16_t>(bits >> 16);
    if (bits == 0) return 0;
    return static_cast<std::uint16_t>((((bits >> 23) - 112) << 10) | ((bits >> 13) & 1023));
}

float value_of(muster::DataType type, std::uint16_t half) {
    std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    if (type == muster::DataType::f16) bits = (((half >> 10) & 31u) + 112) << 23 | (half & 1023u) << 13;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace

int main(int argc, char** argv) {
    auto context = muster::Context::from_environment();
    if (!context) {
        std::fprintf(stderr, "%s\n", context.error().context.c_str());
        return 1;
    }
    bench::pin(context->local_rank());
    muster::DataType type = muster::DataType::f32;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (argv[i] == std::string("--type") && argv[i + 1] == std::string("f16")) type = muster::DataType::f16;
        if (argv[i] == std::string("--type") && argv[i + 1] == std::string("bf16")) type = muster::DataType::bf16;
    }
    auto& world = context->world();
    const bench::Plan plan = bench::plan_from(argc, argv);
    muster::Memory memory;
    bench::Method method;
    method.rank = context->rank();
    method.size = context->world_size();
    method.memory = [&](std::size_t bytes) {
        auto allocated = world.allocate(bytes);
        must(allocated ? muster::Result<void>() : muster::Result<void>(allocated.error()));
        memory = *allocated;
        return memory.data();
    };
    method.barrier = [&] { must(world.run(muster::barrier())); };
    method.all_reduce = [&](void* data, std::size_t bytes) {
        must(world.run(muster::all_reduce({data, bytes / muster::size_of(type), type}, muster::ReduceOp::sum)));
    };
    method.agree = [&](int own) {
        must(world.run(muster::broadcast({&own, 1, muster::DataType::i32}, 0)));
        return own;
    };
    bench::use_f32(method);
    if (type != muster::DataType::f32) {
        method.element_bytes = 2;
        method.fill = [type](void* data, std::size_t bytes, float value) {
            std::fill_n(static_cast<std::uint16_t*>(data), bytes / 2, bits_of(type, value));
        };
        method.read = [type](const void* data, std::size_t index) {
            return value_of(type, static_cast<const std::uint16_t*>(data)[index]);
        };
    }
    if (context->rank() == 0) std::fprintf(stderr, "transport: %s\n", std::string(world.transport()).c_str());
    return bench::run(plan, method);
}
