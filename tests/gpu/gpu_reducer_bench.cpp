// The gradient reducer on GPUs: steps with 161 tensors, as many as ResNet-50 has, whose backward pass is made up of
// repeated fills of each gradient. One line for each world and wire: medians of a step, of what of it the ranks stood
// still for communication, and of the time that collectives were in progress.
//
//   gpu_reducer_bench [LARGEST_MIB]     gradients of about that size, 98 MiB unless told
//
// A world of one on one GPU, then of two that share it as if they were on two hosts (sockets carry the data: what that
// takes says nothing about GPUs of their own). A few seconds each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text/text.h"
#include "tests/gpu/device_training.h"
#include "tests/gpu/gpu_ranks.h"

namespace muster {

namespace {

constexpr int tensor_count = 161;
constexpr int fills = 20;  ///< of each gradient: what stands for its backward pass
constexpr int warm_up_count = 5;
constexpr int step_count_max = 20;
constexpr int step_count_min = 3;
/// For the steps of one line: two ranks on one GPU take turns on it, at a pace that only the run itself tells.
constexpr Duration line_limit = 6s;

double median_ms(std::vector<Duration> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return std::chrono::duration<double, std::milli>(values[values.size() / 2]).count();
}

/// From small to large, as they are met in ResNet-50; about `mib` in all.
std::vector<std::int64_t> rows_of_64(int mib) {
    std::vector<std::int64_t> rows;
    for (int i = 0; i < tensor_count; ++i) rows.push_back(1 + (i % 3 == 2 ? 3 + 94LL * i : i / 8) * mib / 98);
    return rows;
}

/// How many steps fit, by rank 0's clock.
Result<int> steps_to_measure(Communicator& world, Duration warm_up_step) {
    auto count = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(line_limit / std::max<Duration>(warm_up_step, 1us), step_count_min, step_count_max));
    auto told = world.run(broadcast({.data = &count, .count = 1, .type = DataType::i32}, 0));
    return told ? Result<int>(count) : Result<int>(told.error());
}

std::string measure(Communicator& world, WireFormat wire, std::string_view name, int mib) {
    const auto rows = rows_of_64(mib);
    std::size_t elements = 0;
    for (const auto each : rows) elements += static_cast<std::size_t>(each) * 64;
    auto weights = world.allocate(elements * sizeof(float));
    auto gpu = test::GpuMemoryAccess::open(0);
    if (!weights || !gpu) return weights ? gpu.error().context : weights.error().context;
    std::vector<Parameter> parameters;
    auto* place = weights->data();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        parameters.push_back({.name = cat("p", i), .shape = {rows[i], 64}, .type = DataType::f32, .data = place});
        place += static_cast<std::size_t>(rows[i]) * 64 * sizeof(float);
    }
    auto reducer = GradientReducer::make(world, parameters, {.wire = wire, .power_start_step = 0});
    if (!reducer) return reducer.error().context;
    std::vector<Duration> steps, exposed, busy;
    int measured_count = step_count_max;
    for (int step = 0; step < warm_up_count + measured_count; ++step) {
        if (step == warm_up_count) {
            const auto count = steps_to_measure(world, reducer->last_step().total);
            if (!count) return count.error().context;
            measured_count = *count;
        }
        if (auto begun = reducer->begin_step(); !begun) return begun.error().context;
        for (int i = tensor_count - 1; i >= 0; --i) {
            const auto gradient = reducer->gradient(i);
            void* event = nullptr;
            for (int k = 0; k < fills; ++k) {
                auto filled = (*gpu)->begin_fill(gradient.data, 0, gradient.size_bytes());
                if (!filled) return filled.error().context;
                event = *filled;
            }
            if (auto marked = reducer->mark_ready(i, event); !marked) return marked.error().context;
        }
        if (auto finished = reducer->finish(); !finished) return finished.error().context;
        if (step < warm_up_count) continue;
        steps.push_back(reducer->last_step().total);
        exposed.push_back(reducer->last_step().exposed);
        busy.push_back(reducer->last_step().communication);
    }
    if (world.rank() != 0) return "";
    std::printf("%5d  %-5.*s %7.1f MiB %9.2f ms %9.2f ms %6.1f %% %9.2f ms\n", world.size(),
                static_cast<int>(name.size()), name.data(), static_cast<double>(elements) * sizeof(float) / (1 << 20),
                median_ms(steps), median_ms(exposed), 100 * median_ms(exposed) / median_ms(steps), median_ms(busy));
    std::fflush(stdout);
    return "";
}

std::string measure_all(Communicator& world, int mib) {
    if (auto wrong = measure(world, WireFormat::same, "same", mib); !wrong.empty()) return wrong;
    if (const auto why = test::why_no_kernels(world); !why.empty()) {
        if (world.rank() == 0) std::printf("skipped \"compressed wires, world %d\": %s\n", world.size(), why.c_str());
        return "";
    }
    if (auto wrong = measure(world, WireFormat::bf16, "bf16", mib); !wrong.empty()) return wrong;
    if (auto wrong = measure(world, WireFormat::int8, "int8", mib); !wrong.empty()) return wrong;
    return measure(world, WireFormat::power, "power", mib);
}

}  // namespace

}  // namespace muster

int main(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == "--help") {
        std::puts("gpu_reducer_bench [LARGEST_MIB]");
        return 0;
    }
    std::string about;
    const int gpus = muster::test::gpu_count(about);
    std::printf("%s, %d GPUs\n", about.c_str(), gpus);
    if (gpus == 0) return 77;
    const int mib = std::max(1, argc > 1 ? std::atoi(argv[1]) : 98);
    std::printf("%5s  %-5s %11s %12s %12s %8s %12s\n", "ranks", "wire", "gradients", "step", "exposed", "share",
                "collectives");
    std::fflush(stdout);
    for (const int size : {1, 2}) {
        const auto wrong = muster::test::on_one_gpu(
            size, [mib](muster::Communicator& world, int) { return muster::measure_all(world, mib); });
        if (!wrong.empty()) return std::printf("%d ranks: %s\n", size, wrong.c_str()), 1;
    }
    return 0;
}
