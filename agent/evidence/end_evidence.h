// Collects facts about a worker's end, right after it: counters of control groups, the kernel log, /dev/shm, the core
// dump. It reads a few small files in about a millisecond and never waits. diagnosis/end_cause.h judges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/diagnosis/end_cause.h"
#include "agent/diagnosis/oom_tally.h"
#include "agent/evidence/memory_group.h"
#include "agent/supervision/process_host.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

class EndEvidence {
  public:
    /// Finds the memory group of this process, which the workers' groups are below, and opens the kernel's log where
    /// that is allowed. Warns where the kernel would end this process together with a worker for which memory runs out.
    EndEvidence();
    /// From this group's counter and this log, each read of which is one record.
    EndEvidence(std::optional<FoundMemoryGroup> group, FileDescriptor kernel_log);

    /// A round's workers are about to start: what was counted and logged before is none of theirs.
    void begin_round();

    /// To be called every few seconds, at least, while workers run: when a kill was counted tells whose it may be.
    void look(Instant now);

    /// Of a worker that has ended and not succeeded. `message` is the error file's.
    FailureCause cause_of(const WorkerEnded& ended, const std::string& message, const std::string& host,
                          Killer killer = Killer::unknown);

    /// The newest file that this pattern of core_dump_place fits and that is no older than `since_s` (seconds since
    /// 1970): what lies there from before is another worker's. Else "written to " and the pattern.
    [[nodiscard]] static std::string newest_core(const std::string& pattern, std::int64_t since_s);

    /// "processes 42 (python3, in uninterruptible sleep in nfs_wait_bit_killable)": those that SIGKILL did not remove.
    [[nodiscard]] static std::string describe_unkillable(const std::vector<std::int32_t>& pids);

  private:
    /// How many out-of-memory kills it tells of that were not read before.
    int read_kernel_log();
    [[nodiscard]] std::optional<std::int64_t> count_kills() const {
        return group_ ? group_->count_kills() : count_oom_kills("/proc/vmstat");
    }

    std::optional<FoundMemoryGroup> group_;  ///< Empty: only the host's counter is available.
    OomTally oom_kills_;
    std::int64_t round_began_s_ = 0;  // seconds since 1970, on this host's clock
    FileDescriptor kernel_log_;       ///< Positioned at the first unread record.
    std::vector<KernelEvent> kernel_events_;
};

}  // namespace muster::agent
