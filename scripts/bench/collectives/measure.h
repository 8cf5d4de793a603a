// How every method of scripts/bench/all_reduce is timed: the same loop around different libraries.
//
// One round: the owner rewrites its buffer (so that its cache holds it dirty, as a backward pass leaves it), all ranks
// meet, and each times its own all-reduce. Rank 0's times are printed, one JSON line a size: their median, least, 95th
// percentile, and 21 quantiles, from which blocks are put together. No check of sums is skipped: the first rounds of
// each size are compared. torch_rank.py has the same loop.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <sched.h>

namespace bench {

struct Plan {
    std::vector<std::size_t> sizes;  ///< bytes
    double seconds = 0.2;            ///< for each size
    int rounds_max = 2000;
    int rounds_min = 3;

    /// Faults pages in and fills caches; at this size one round has done so.
    static int warm_up_rounds(std::size_t bytes) { return bytes < 64u << 20 ? 3 : 1; }
};

inline Plan plan_from(int argc, char** argv) {
    Plan plan;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string option = argv[i];
        if (option == "--seconds") plan.seconds = std::atof(argv[i + 1]);
        if (option != "--sizes") continue;
        for (char* at = argv[i + 1]; *at != '\0';) {
            plan.sizes.push_back(std::strtoull(at, &at, 10));
            if (*at == ',') ++at;
        }
    }
    return plan;
}

/// Rank r on core r, wrapping; the same for every method.
inline void pin(int rank) {
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &all)) cores.push_back(core);
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores[static_cast<std::size_t>(rank) % cores.size()], &one);
    sched_setaffinity(0, sizeof one, &one);
}

/// What one method brings: its members are filled one by one.
struct Method {
    int rank = 0;
    int size = 1;
    std::function<void*(std::size_t bytes)> memory;  ///< the buffer for this size
    std::function<void()> barrier;
    std::function<void(void* data, std::size_t bytes)> all_reduce;  ///< sum, f32 unless the fields below say else
    std::function<void(void* data, std::size_t bytes, float value)> fill;  ///< `value` into every element
    std::function<float(const void* data, std::size_t index)> read;
    std::size_t element_bytes = 4;
    std::function<int(int own)> agree;  ///< rank 0's number of rounds, told to all
};

inline void use_f32(Method& method) {
    if (!method.memory) {
        method.memory = [memory = std::vector<float>()](std::size_t bytes) mutable {
            memory.assign(bytes / sizeof(float), 0);
            return memory.data();
        };
    }
    method.fill = [](void* data, std::size_t bytes, float value) {
        std::fill_n(static_cast<float*>(data), bytes / sizeof(float), value);
    };
    method.read = [](const void* data, std::size_t index) { return static_cast<const float*>(data)[index]; };
}

inline double timed_round(const Method& method, void* data, std::size_t bytes) {
    method.fill(data, bytes, static_cast<float>(method.rank + 1));
    method.barrier();
    const auto from = std::chrono::steady_clock::now();
    method.all_reduce(data, bytes);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count();
}

inline int run(const Plan& plan, const Method& method) {
    for (const auto bytes : plan.sizes) {
        void* const data = method.memory(bytes);
        double first = 0;
        for (int i = 0; i < Plan::warm_up_rounds(bytes); ++i) first = timed_round(method, data, bytes);
        const auto expected = static_cast<float>(method.size * (method.size + 1) / 2);
        for (const std::size_t index : {std::size_t{0}, bytes / method.element_bytes - 1}) {
            if (method.read(data, index) == expected) continue;
            std::fprintf(stderr, "wrong sum of %zu bytes at %zu\n", bytes, index);
            return 1;
        }
        const auto wanted = static_cast<int>(plan.seconds * 1e6 / std::max(first * 1.5, 1.0));
        const int rounds = method.agree(std::clamp(wanted, plan.rounds_min, plan.rounds_max));
        std::vector<double> times;
        for (int i = 0; i < rounds; ++i) times.push_back(timed_round(method, data, bytes));
        std::sort(times.begin(), times.end());
        const auto at = [&times](double share) {
            return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
        };
        if (method.rank != 0) continue;
        std::printf("{\"bytes\": %zu, \"median_us\": %.3f, \"min_us\": %.3f, \"p95_us\": %.3f, \"rounds\": %d, ", bytes,
                    at(0.5), at(0), at(0.95), rounds);
        std::printf("\"quantiles_us\": [%.3f", at(0));
        for (int i = 1; i <= 20; ++i) std::printf(", %.3f", at(i / 20.0));
        std::printf("]}\n");
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace bench
