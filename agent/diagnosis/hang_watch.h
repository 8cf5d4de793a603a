// Detects workers that make no progress. Pure: the driver feeds it /proc samples and flight records once a second. It
// returns notices for the user and orders to kill a worker. FAILURES.md lists what is detected and what is ignored. A
// slow worker is not hung. A worker is active if it used 2 % of a CPU, did I/O or began an operation since the last
// sample, or a child of it used 2 % of a CPU. There is no timeout for active workers. Inactive workers are reported,
// not killed: a GPU, a peer's stage or a server may work for them. Only a worker stopped by a signal is killed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

struct HangConfig {
    std::string host{};          ///< Name of this node in notices. May be empty.
    Duration stuck_after = 10s;  ///< A worker stopped (T) or in uninterruptible sleep (D) for this time is reported.
    /// If all workers of the node are inactive for this time, each one's place is reported.
    Duration silent_after = 120s;
    /// A worker that others wait for is reported, and a stopped one killed, after this time of inactivity or gap_factor
    /// times the longest pause between two of its operations, whichever is longer. Zero: neither.
    Duration deadline_min = 10s;
    std::int64_t gap_factor = 3;
    /// A rank is a straggler if over this window the others of its node spent this share of time more inside
    /// operations: they wait for it. Reported, and again after ten windows. Never killed.
    Duration straggler_window = 60s;
    double straggler_share = 0.2;
    /// With fewer operations the worker is still starting, and its pauses are unknown.
    std::uint64_t operations_min = 16;
    std::uint64_t heartbeats_min = 3;  ///< With fewer pauses between heartbeats, a missing heartbeat is not reported.
    /// A worker inactive for this time (at most deadline_min) is reported if the round fails. A worker inside one
    /// operation for this time is waiting: overdue workers of any node are missing there.
    Duration report_idle_after = 5s;
};

/// The last operations of a worker, from its flight record.
struct OperationSample {
    std::uint64_t count = 0;  ///< Number of operations begun.
    bool inside = false;      ///< True while an operation is running.
    std::string name;         ///< "all_reduce 41 of world": the running operation, else the last one.
    Duration longest_gap{};   ///< Longest pause between two operations in the record.
    /// Share of the time of the newest operations that was spent inside them: waiting for others or moving data.
    double inside_share = 0;
    Instant newest_at{};  ///< Start of the newest operation.
};

/// One worker at one time.
struct WorkerSample {
    std::uint32_t local_rank = 0;
    std::int32_t rank = 0;
    std::int32_t pid = 0;
    char state = '?';                        ///< State of /proc/PID/stat.
    Duration cpu{};                          ///< CPU time of all threads and of ended children so far.
    std::optional<Duration> children_cpu{};  ///< That of running descendants. Asked for by HangWatch::seems_idle().
    std::uint64_t io_bytes = 0;              ///< Bytes read and written by system calls so far.
    std::string where;                       ///< Kernel function in which it sleeps. Empty: unknown.
    std::string section;           ///< Section that the worker has announced. Exempt from checks while not empty.
    Duration section_limit{};      ///< The section's own limit. Zero: none.
    std::uint64_t heartbeats = 0;  ///< Heartbeats sent so far.
    std::int64_t step = -1;        ///< The last step that it reported. -1: none.
    std::optional<OperationSample> operation;
};

struct EndOrder {
    std::uint32_t local_rank = 0;
    std::string why;  ///< Text for the report.
};

struct HangStep {
    std::vector<std::string> notices;
    /// Local ranks whose stacks are to be printed, each once until it is active again.
    std::vector<std::uint32_t> stacks;
    /// Local ranks whose stacks are to be passed to stands_at(). They are reported only if the round fails.
    std::vector<std::uint32_t> places;
    std::vector<EndOrder> ends;  ///< Each worker once.
};

class HangWatch {
  public:
    explicit HangWatch(HangConfig config) : config_(config) {}

    /// Forgets the workers of the previous round.
    void begin_round();
    /// True if the worker itself has done nothing since the last sample. It may wait for a child that works, such as a
    /// compiler, so judge() needs the sample's children_cpu. Reading it costs more than all the rest.
    [[nodiscard]] bool seems_idle(const WorkerSample& sample, Instant now) const;
    /// Judges the samples of all running workers of this node. After a pause of the agent (no call for 5 s) all timers
    /// restart, here or in job_seen(), because the machine may have been suspended.
    HangStep judge(const std::vector<WorkerSample>& samples, Instant now);
    /// The round failed: returns a line for each worker that was inactive outside of operations. Ranks on other nodes
    /// may have waited for these.
    [[nodiscard]] std::vector<std::string> round_failed(Instant now) const;
    /// The answer to HangStep::places. Valid until the worker is active again.
    void stands_at(std::uint32_t local_rank, std::string place);
    /// Another process has taken a rank's place: its end in this round is no news any more.
    void worker_started(std::uint32_t rank);
    void worker_ended(std::uint32_t local_rank, Instant now);
    /// Workers of this round that are idle for long, or were until just now (their wait timed out, and they may have
    /// exited). Missing and longest idle workers first, at most native::activities_max.
    [[nodiscard]] std::vector<WorkerActivity> activities(Instant now) const;
    /// Running workers at the last sample, rank 0 and suspicious ones first, at most native::activities_max. Other
    /// nodes need this if this node is lost, and to find missing ranks.
    [[nodiscard]] std::vector<native::SeenWorker> seen(Instant now) const;
    /// All running workers at the last sample.
    [[nodiscard]] native::RankCounts counts(Instant now) const;
    /// Handles the daemon's summary: an overdue worker of this node is missing from an operation in which another
    /// node's worker waits.
    HangStep job_seen(const native::JobSeen& seen, Instant now);

  private:
    struct Known {
        WorkerSample last;
        Instant active_at;                   ///< Time of the last activity.
        std::optional<Instant> stuck_since;  ///< In state T or D and inactive in each sample since then.
        bool stuck_reported = false;
        Duration longest_gap{};
        bool missing_reported = false;  ///< Since the last activity.
        bool end_ordered = false;
        bool stacks_reported = false;  ///< Since the last activity.
        bool place_asked = false;      ///< Since the last activity.
        std::string place;
        Instant operation_since{};                           ///< Start of this operation, or of the pause after it.
        std::optional<native::WaitingWorker> waited_for_by;  ///< On another node, since the last activity.
        std::optional<WorkerActivity> last_rest;             ///< Its place while it was idle for long.
        Instant rest_told_until{};
        Duration rest_cpu{};      ///< CPU time that it had used at the end of the rest.
        Instant section_since{};  ///< Start of the section.
        bool section_reported = false;
        Instant heartbeat_at{};  ///< Time of the last heartbeat.
        Duration longest_heartbeat_pause{};
        std::uint64_t heartbeat_pauses = 0;
        bool heartbeat_reported = false;
        double share_sum = 0;  ///< Sum of inside_share over the samples of this straggler_window.
        std::uint64_t share_count = 0;
    };

    [[nodiscard]] bool used_cpu(Duration used, Instant now) const;
    [[nodiscard]] bool did_something(const Known& known, const WorkerSample& sample, Instant now) const;
    static Known first_seen(const WorkerSample& sample, Instant now);
    void restart_after_pause(Instant now);
    void note(Known& known, const WorkerSample& sample, Instant now);
    void note_section_and_heartbeats(Known& known, const WorkerSample& sample, Instant now) const;
    void report_stuck(Known& known, Instant now, HangStep& step) const;
    void report_section(Known& known, Instant now, HangStep& step) const;
    void report_heartbeats(Known& known, Instant now, HangStep& step);
    void report_silent(Instant now, HangStep& step);
    void report_straggler(Instant now, HangStep& step);
    void ask_places(Instant now, HangStep& step);
    [[nodiscard]] bool is_reportable(const Known& known, Instant now) const;
    [[nodiscard]] std::optional<WorkerActivity> where_was(const Known& known, Instant now) const;
    [[nodiscard]] static WorkerActivity where_is(const Known& known, Instant now);
    void order_ends(Instant now, HangStep& step);
    void request_all_stacks(Known& first, HangStep& step);
    [[nodiscard]] std::string named(const WorkerSample& sample) const;
    [[nodiscard]] std::optional<std::string> why_hung(const Known& known, Instant now) const;
    [[nodiscard]] bool is_overdue(const Known& known, Instant now) const;
    [[nodiscard]] native::WorkerPace pace_of(const Known& known, Instant now) const;
    [[nodiscard]] const Known* waiting_beside(const Known& known) const;
    [[nodiscard]] std::optional<native::WaitingWorker> waiting_for(const Known& known) const;

    HangConfig config_;
    std::map<std::uint32_t, Known> workers_;  ///< Keyed by local rank.
    std::vector<WorkerActivity> ended_;       ///< Workers that have exited.
    std::optional<Instant> last_sample_;
    bool silence_reported_ = false;
    std::optional<Instant> shares_since_;
    std::optional<Instant> straggler_reported_at_;
};

/// "rank 3 (pid 42): stopped, inside all_reduce 41 of world".
std::string describe(const WorkerSample& sample);

}  // namespace muster::agent
