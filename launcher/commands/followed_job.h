// What the daemon says again and again of a job whose lines are followed (muster logs JOB -f).
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "launcher/commands/job_logs.h"
#include "launcher/commands/status_source.h"

namespace muster::launcher {

class FollowedJob {
  public:
    /// `tell`: a sentence for the user. `source` must outlive it.
    FollowedJob(const StatusSource& source, const std::string& job, std::size_t node_count, JobLogs::Trouble tell);

    /// Gives `logs` what it has heard. False: the job is over, or nobody is left to hear of it.
    bool goes_on(JobLogs& logs);

  private:
    void hear(const Result<std::string>& answer, JobLogs& logs);

    const StatusSource& source_;
    const JobLogs::Trouble tell_;
    const Duration usual_;
    const Duration hasty_;
    bool is_over_ = false;
    bool hastens_ = false;
    Instant round_seen_at_ = std::chrono::steady_clock::now();
    bool trouble_ = false;                                 ///< The daemon does not say where the nodes are.
    Instant heard_at_ = std::chrono::steady_clock::now();  ///< Of the daemon or of a node.
    StatusPoll poll_;
};

}  // namespace muster::launcher
