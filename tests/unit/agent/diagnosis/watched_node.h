// Four workers under a virtual clock, for the tests of the hang watch.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "agent/diagnosis/hang_watch.h"

namespace muster::agent::test {

/// Samples are 1 s apart.
struct WatchedNode {
    explicit WatchedNode(HangConfig config = {}) : watch(config) {
        watch.begin_round();
        for (std::uint32_t i = 0; i < 4; ++i) {
            WorkerSample sample;
            sample.local_rank = i;
            sample.rank = static_cast<std::int32_t>(i) + 4;
            sample.pid = 100 + static_cast<std::int32_t>(i);
            sample.state = 'S';
            samples.push_back(sample);
        }
    }

    /// Every worker does a step and computes for half a second.
    void train() {
        for (auto& sample : samples) {
            sample.cpu += 500ms;
            ++steps;
            sample.operation = OperationSample{steps, false, "all_reduce 40 of world", 100ms, 0.3};
        }
    }
    void learn() {
        for (int i = 0; i < 10; ++i) {
            train();
            second();
        }
    }
    /// All but `one` wait in the next operation for it.
    void wait_for(std::size_t one) {
        for (std::size_t i = 0; i < samples.size(); ++i)
            if (i != one) samples[i].operation = OperationSample{steps + 1, true, "all_reduce 41 of world", 100ms, 0.3};
    }
    void second() {
        now += 1s;
        auto step = watch.judge(samples, now);
        for (auto& line : step.notices) notices.push_back(line);
        for (auto& order : step.ends) ends.push_back(order);
        for (const auto local_rank : step.stacks) stacks.push_back(local_rank);
        for (const auto local_rank : step.places) places.push_back(local_rank);
    }
    /// How often a worker was told of that others wait for.
    [[nodiscard]] std::ptrdiff_t missing() const {
        return std::count_if(notices.begin(), notices.end(), [](const std::string& line) {
            return line.find("; it is missing from ") != std::string::npos;
        });
    }
    void seconds(int count) {
        for (int i = 0; i < count; ++i) second();
    }

    HangWatch watch;
    std::vector<WorkerSample> samples;
    Instant now{1000s};
    std::uint64_t steps = 0;
    std::vector<std::string> notices;
    std::vector<EndOrder> ends;
    std::vector<std::uint32_t> places;
    std::vector<std::uint32_t> stacks;
};

}  // namespace muster::agent::test
