// One rank of scripts/bench/gradients: what the gradient reducer itself costs, and how much communication it hides.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "muster/context.h"
#include "muster/gradient_reducer.h"

using namespace muster;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) {
    return std::chrono::duration<double>(Clock::now() - began).count();
}

template <class T>
T must(Result<T> result) {
    if (result) {
        if constexpr (std::is_void_v<T>) {
            return;
        } else {
            return std::move(*result);
        }
    }
    std::fprintf(stderr, "%s\n", result.error().context.c_str());
    std::exit(1);
}

struct Model {
    explicit Model(const std::vector<std::int64_t>& sizes) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            memory.emplace_back(static_cast<std::size_t>(sizes[i]));
            parameters.push_back({.name = "p" + std::to_string(i),
                                  .shape = {sizes[i] / 64, 64},
                                  .type = DataType::f32,
                                  .data = memory.back().data()});
        }
    }
    std::vector<std::vector<float>> memory;
    std::vector<Parameter> parameters;
};

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

/// Nanoseconds a parameter: of mark_ready() alone, and of a whole step without the time spent waiting.
void overhead(Communicator& world) {
    constexpr int count = 1000;
    Model model(std::vector<std::int64_t>(count, 64));
    auto reducer = must(GradientReducer::make(world, model.parameters));
    std::vector<double> marks;
    std::vector<double> steps;
    for (int step = 0; step < 300; ++step) {
        const auto began = Clock::now();
        must(reducer.begin_step());
        const auto marking = Clock::now();
        for (int i = count - 1; i >= 0; --i) must(reducer.mark_ready(i));
        const double marked = seconds_since(marking);
        must(reducer.finish());
        const double exposed = std::chrono::duration<double>(reducer.last_step().exposed).count();
        if (step < 20) continue;
        marks.push_back(1e9 * marked / count);
        steps.push_back(1e9 * (seconds_since(began) - exposed) / count);
    }
    if (world.rank() == 0) std::printf("overhead %d %.0f %.0f\n", world.size(), median(marks), median(steps));
}

/// Writes the gradient, and takes as long as a backward pass of `per_mib` does for it.
void compute(const Buffer& gradient, double per_mib) {
    const auto began = Clock::now();
    const double wanted = per_mib * static_cast<double>(gradient.size_bytes()) / (1 << 20);
    auto* const values = static_cast<float*>(gradient.data);
    std::fill_n(values, gradient.count, 1.0f);
    while (seconds_since(began) < wanted) {
    }
}

void overlap(Communicator& world, const std::string& wire) {
    // As many tensors as ResNet-50 has, from small to large as they are met there: 97.5 MiB.
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < 161; ++i) sizes.push_back(i % 3 == 2 ? 64 * (4 + 94 * i) : 64 * (1 + i / 8));
    Model model(sizes);
    ReducerOptions options;
    options.wire = wire == "bf16" ? WireFormat::bf16 : wire == "int8" ? WireFormat::int8 : WireFormat::same;
    auto reducer = must(GradientReducer::make(world, model.parameters, options));
    for (int step = 0; step < 14; ++step) {
        must(reducer.begin_step());
        for (int i = 160; i >= 0; --i) {
            compute(reducer.gradient(i), 2e-3);
            must(reducer.mark_ready(i));
        }
        must(reducer.finish());
    }
    const auto costs = reducer.costs();
    const auto ms = [](Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); };
    if (world.rank() == 0) {
        std::printf("overlap %d %s %.1f %.2f %.2f %.2f %zu\n", world.size(), wire.c_str(),
                    static_cast<double>(costs.bucket_bytes) / (1 << 20), ms(costs.mean.total), ms(costs.mean.exposed),
                    ms(costs.mean.communication), costs.bucket_count);
    }
}

}  // namespace

int main() {
    auto context = must(Context::from_environment());
    overhead(context.world());
    for (const char* const wire : {"same", "bf16", "int8"}) overlap(context.world(), wire);
    return 0;
}
