// What the steps of a training run cost, and what that says about running it on more or fewer workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster {

/// One step on this rank: from the end of the step before to its own end (the return of finish()). So the optimizer's
/// work after step k counts as compute of step k + 1. total = compute + data_wait + exposed.
struct StepCost {
    Duration total{};
    Duration data_wait{};      ///< what the trainer reported as such
    Duration exposed{};        ///< the training thread stood still for communication, slower ranks included
    Duration compute{};        ///< the rest
    Duration communication{};  ///< collectives in progress, hidden behind compute or not
    std::size_t bytes = 0;     ///< this rank gave to collectives, after compression
    double samples = 0;        ///< of all ranks

    /// The part of `communication` that compute hid.
    [[nodiscard]] Duration overlap() const { return communication > exposed ? communication - exposed : Duration{}; }
};

/// The mean of the steps that count. Start-up is slower and must not be judged, so the first steps, and those that made
/// new buckets, do not count.
struct CostSummary {
    int world = 1;
    std::uint64_t step_count = 0;      ///< that count
    std::uint64_t left_out_count = 0;  ///< that do not
    StepCost mean;
    StepCost first;                  ///< the first step of all
    std::vector<Duration> lateness;  ///< of each rank: how much longer the most patient rank waited than this one
    std::size_t bucket_count = 0;
    std::size_t bucket_bytes = 0;  ///< of all gradients

    [[nodiscard]] double samples_per_second() const;
    /// Exposed communication as a share of the step.
    [[nodiscard]] double exposed_share() const;
};

/// The same trainer's run on another number of workers, to compare with; most often one.
struct Baseline {
    int world = 1;
    double samples_per_second = 0;
    double samples_per_step = 0;  ///< of all ranks
};

/// Efficiency is a worker's samples per second as a share of a baseline worker's: 1 is a perfect speed-up.
struct ScalingReport {
    std::optional<double> strong;     ///< the baseline had the same number of samples in a step
    std::optional<double> weak;       ///< the baseline had the same number of samples for each worker in a step
    double estimated = 1;             ///< without a baseline: the share of the step that is not exposed communication
    std::vector<std::string> advice;  /// sentences; empty while exposed communication is at most 10 % of the step
    std::string text;                 ///< all of it, for people
};

/// Two batches are the same when they differ by at most 1 %. A summary without steps gives a report that says so.
ScalingReport scaling_report(const CostSummary& summary, const std::optional<Baseline>& baseline = std::nullopt);

}  // namespace muster
