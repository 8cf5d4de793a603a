// The cost of the steps of a training run, and the scaling efficiency that follows from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster {

/// One step on this rank: from the end of the previous step to its own end (the return of finish()). So the optimizer's
/// work after step k counts as compute of step k + 1. total = compute + data_wait + exposed.
struct StepCost {
    Duration total{};
    Duration data_wait{};      ///< waiting for input, as the trainer reported it
    Duration exposed{};        ///< the training thread waited for communication, slower ranks included
    Duration compute{};        ///< the rest
    Duration communication{};  ///< collectives were in progress, hidden behind compute or not
    std::size_t bytes = 0;     ///< bytes that this rank passed to collectives, after compression
    double samples = 0;        ///< samples of all ranks

    /// The part of `communication` that compute hid.
    [[nodiscard]] Duration overlap() const { return communication > exposed ? communication - exposed : Duration{}; }
};

/// The mean of the counted steps. The first steps, and those that made new buckets, are not counted, because start-up
/// is slower.
struct CostSummary {
    int world = 1;
    std::uint64_t step_count = 0;      ///< counted steps
    std::uint64_t left_out_count = 0;  ///< steps not counted
    StepCost mean;
    StepCost first;                  ///< the first step of the run
    std::vector<Duration> lateness;  ///< by rank: the longest wait of any rank minus the wait of this rank
    std::size_t bucket_count = 0;
    std::size_t bucket_bytes = 0;  ///< bytes of all gradients

    [[nodiscard]] double samples_per_second() const;
    /// Exposed communication as a share of the step.
    [[nodiscard]] double exposed_share() const;
};

/// A run of the same trainer on another number of workers (usually one), for comparison.
struct Baseline {
    int world = 1;
    double samples_per_second = 0;
    double samples_per_step = 0;  ///< samples of all ranks
};

/// Efficiency is the samples per second of a worker, divided by those of a baseline worker: 1 is a perfect speed-up.
struct ScalingReport {
    std::optional<double> strong;     ///< set if the baseline had the same number of samples per step
    std::optional<double> weak;       ///< set if the baseline had the same number of samples per worker and step
    double estimated = 1;             ///< without a baseline: the share of the step without exposed communication
    std::vector<std::string> advice;  ///< sentences; empty if exposed communication is at most 10 % of the step
    std::string text;                 ///< the whole report as readable text
};

/// Two batch sizes count as equal if they differ by at most 1 %. The report of a summary without steps reads "no
/// steps".
ScalingReport scaling_report(const CostSummary& summary, const std::optional<Baseline>& baseline = std::nullopt);

}  // namespace muster
