// One rank of scripts/bench/gradients: what the gradient reducer itself costs, and how much communication it hides.
//
//   bench_gradients_rank --calibrate    alone on its core: prints the rounds of arithmetic that, with writing the
//                                       gradient, take 2 ms for each MiB of it
//   bench_gradients_rank ROUNDS         measures, with so many
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
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

/// Arithmetic that takes the same work each time, however long the core takes for it, and touches no memory.
void work(double rounds) {
    static volatile double first = 1;  // so that no call's result is known before
    double x = first;
    for (auto left = static_cast<std::int64_t>(rounds); left > 0; --left) x = x * 0.999999 + 1e-6;
    [[maybe_unused]] volatile double kept = x;
}

/// What stands for a backward pass: a fixed amount of work for each MiB of gradient. So a core that communication takes
/// away meanwhile makes the pass longer.
void compute(const Buffer& gradient, double rounds_per_mib) {
    std::fill_n(static_cast<float*>(gradient.data), gradient.count, 1.0f);
    work(rounds_per_mib * static_cast<double>(gradient.size_bytes()) / (1 << 20));
}

/// The least of many tries, as nothing else has the core then.
double rounds_for(double seconds_per_mib) {
    std::vector<float> mib((1 << 20) / sizeof(float));
    constexpr double tried = 200'000;
    double least_fill = 1;
    double least_work = 1;
    for (int i = 0; i < 200; ++i) {
        auto began = Clock::now();
        compute({.data = mib.data(), .count = mib.size(), .type = DataType::f32}, 0);
        least_fill = std::min(least_fill, seconds_since(began));
        began = Clock::now();
        work(tried);
        least_work = std::min(least_work, seconds_since(began));
    }
    return tried * (seconds_per_mib - least_fill) / least_work;
}

double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void overlap(Communicator& world, const std::string& wire, double rounds) {
    // As many tensors as ResNet-50 has, from small to large as they are met there: 97.5 MiB.
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < 161; ++i) sizes.push_back(i % 3 == 2 ? 64 * (4 + 94 * i) : 64 * (1 + i / 8));
    Model model(sizes);
    ReducerOptions options;
    options.wire = wire == "bf16" ? WireFormat::bf16 : wire == "int8" ? WireFormat::int8 : WireFormat::same;
    auto reducer = must(GradientReducer::make(world, model.parameters, options));
    std::vector<double> alone, steps, exposed, busy;
    const auto ms = [](Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); };
    for (int step = 0; step < 14; ++step) {
        // The same pass of all ranks at once, without communication and beside it.
        must(world.run(barrier()));
        auto began = Clock::now();
        for (int i = 160; i >= 0; --i) compute(reducer.gradient(i), rounds);
        const double pass = seconds_since(began);
        must(world.run(barrier()));
        began = Clock::now();
        must(reducer.begin_step());
        for (int i = 160; i >= 0; --i) {
            compute(reducer.gradient(i), rounds);
            must(reducer.mark_ready(i));
        }
        must(reducer.finish());
        if (step < 4) continue;  // start-up, and new buckets
        alone.push_back(1e3 * pass);
        steps.push_back(1e3 * seconds_since(began));
        exposed.push_back(ms(reducer.last_step().exposed));
        busy.push_back(ms(reducer.last_step().communication));
    }
    if (world.rank() == 0) {
        const auto costs = reducer.costs();
        std::printf("overlap %d %s %.1f %.2f %.2f %.2f %zu %.2f\n", world.size(), wire.c_str(),
                    static_cast<double>(costs.bucket_bytes) / (1 << 20), mean(steps), mean(exposed), mean(busy),
                    costs.bucket_count, mean(alone));
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view wish = argc == 2 ? argv[1] : "";
    if (wish == "--calibrate") return std::printf("%.0f\n", rounds_for(2e-3)) > 0 ? 0 : 1;
    const double rounds = std::atof(wish.data());
    if (rounds <= 0) return std::fputs("usage: bench_gradients_rank --calibrate | ROUNDS\n", stderr), 2;
    auto context = must(Context::from_environment());
    overhead(context.world());
    for (const char* const wire : {"same", "bf16", "int8"}) overlap(context.world(), wire, rounds);
    return 0;
}
