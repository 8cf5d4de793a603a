// A worker whose steps take 1 ms of processor time, for scripts/bench/reporting.
//
//   paced_steps calibrate                     prints how much work takes 1 ms here
//   paced_steps STEPS WORK report|silent|both
//
// Each step does WORK multiplications; `report` calls muster::progress() after each, `both` in every other hundred.
// Prints the processor time of the whole process and the elapsed time for a step, in ns, without and with a report.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "muster/section.h"

namespace {

constexpr int block_steps = 100;

std::int64_t cpu_ns() {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return std::int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

std::int64_t wall_ns() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void work(long amount) {
    volatile double value = 1;
    for (long i = 0; i < amount; ++i) value = value * 1.0000001;
}

struct Cost {
    std::int64_t steps = 0;
    std::int64_t cpu = 0;
    std::int64_t wall = 0;
};

void print(const char* what, const Cost& cost) {
    if (cost.steps == 0) return;
    std::printf("%s %lld %lld\n", what, static_cast<long long>(cost.cpu / cost.steps),
                static_cast<long long>(cost.wall / cost.steps));
}

/// The fastest of some blocks: others use this host, too.
int calibrate() {
    constexpr long amount = 10'000'000;
    std::int64_t least = INT64_MAX;
    for (int turn = 0; turn < 10; ++turn) {
        const auto begun = cpu_ns();
        work(amount);
        least = std::min(least, cpu_ns() - begun);
    }
    std::printf("%lld\n", static_cast<long long>(amount * 1'000'000.0 / static_cast<double>(least)));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::string_view(argv[1]) == "calibrate") return calibrate();
    if (argc != 4) return 2;
    const std::int64_t steps = std::atoll(argv[1]);
    const long amount = std::atol(argv[2]);
    const std::string_view wish = argv[3];
    Cost silent, reported;
    for (std::int64_t step = 0; step < steps;) {
        const bool reports = wish == "report" || (wish == "both" && step / block_steps % 2 == 1);
        auto& cost = reports ? reported : silent;
        const auto cpu = cpu_ns(), wall = wall_ns();
        for (const auto end = std::min(steps, step + block_steps); step < end; ++step, ++cost.steps) {
            work(amount);
            if (reports) muster::progress(step);
        }
        cost.cpu += cpu_ns() - cpu;
        cost.wall += wall_ns() - wall;
    }
    print("silent", silent);
    print("reported", reported);
    return 0;
}
