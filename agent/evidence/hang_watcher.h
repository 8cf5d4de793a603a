// Samples the workers once a second and executes the decisions of diagnosis/hang_watch.h.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/diagnosis/hang_watch.h"
#include "agent/diagnosis/stack_text.h"
#include "agent/evidence/step_sample.h"
#include "agent/evidence/torch_dump.h"
#include "agent/evidence/torch_server.h"
#include "agent/process/side_runs.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/events/event.h"
#include "rendezvous/wire/native/failure_cause.h"

namespace muster::agent {

class HangWatcher {
  public:
    /// What a worker reports about itself, read with each sample.
    struct WorkerInput {
        std::string section;
        Duration section_limit{};
        std::uint64_t heartbeats = 0;
        std::optional<OperationSample> operation;
        StepSample steps;          ///< The training steps that it reported.
        SectionTimes sections{};   ///< Time in each so far.
        std::string torch_socket;  ///< Socket of torch's handlers in it. Empty: none.
        std::string torch_file;    ///< Path for its dump.
    };

    /// `environment` is the environment of the workers.
    HangWatcher(boost::asio::io_context& loop, HangConfig config,
                const std::map<std::string, std::string>& environment);

    std::function<WorkerInput(std::uint32_t local_rank)> ask;
    std::function<void(std::string)> on_notice;
    /// Called with section_entered and section_left: of each rank when a sample sees it, a hundred times in a round,
    /// and not more often than every ten seconds.
    std::function<void(const Event&)> on_event;
    /// Called with the workers' states: after their start, every 10 s, and at once when a worker becomes overdue or
    /// waiting or ceases to be, or reports its first step.
    std::function<void(native::WorkersSeen)> on_seen;

    void begin_round(std::uint32_t rank_base);
    void worker_started(std::uint32_t local_rank, std::int32_t pid);
    /// A summary of the current round.
    void job_seen(const native::JobSeen& seen);
    /// `hung` if this watcher killed the worker, else unknown.
    FailureCause worker_ended(std::uint32_t local_rank);
    /// The round failed: reports the places of this node's idle workers.
    void round_failed();
    /// The places of idle workers when the round failed, including workers that ended before.
    [[nodiscard]] std::vector<WorkerActivity> activities() const;
    /// The workers are being stopped: no samples until the next round.
    void rest();

    /// Calls `use` once with the stacks of the workers of these ranks (nothing: all) that run or are being stopped, as
    /// far as they are known, within some 2 s. It may be called within the destructor, too.
    void tell_stacks(const std::optional<std::set<std::uint32_t>>& ranks, std::function<void(std::string)> use);

    /// WorkersSeen::sections of this round.
    [[nodiscard]] const SectionTimes& sections() const { return sections_; }

  private:
    struct Worker {
        std::int32_t pid = 0;
        std::int32_t program = 0;  ///< The program under a shell, else the worker itself.
        FileDescriptor pidfd;      ///< Protects against reused pids. Invalid: the worker is not killed.
        std::string ended_why;
        char state = '?';       ///< State in the last sample.
        std::string section;    ///< That on_event was told of. Empty: none, or it was left.
        Instant section_due{};  ///< It is told of no other one before.
        /// Callbacks for its stacks. Not empty while they are being read.
        std::vector<std::function<void(const StackText&)>> want;
    };

    void arm();
    void sample_workers();
    void tell_section(std::uint32_t local_rank, Worker& worker, const std::string& section);
    [[nodiscard]] WorkerSample sample_of(std::uint32_t local_rank, Worker& worker);
    /// Calls `use` with the stacks, unless the worker ends or rest() is called first.
    void take_stacks(std::uint32_t local_rank, Duration limit, std::function<void(const StackText&)> use);
    void stacks_taken(std::uint32_t local_rank, std::int32_t pid, const std::string& output);
    void report_stacks(std::uint32_t local_rank);
    void ask_place(std::uint32_t local_rank);
    void end(const EndOrder& order, const StackText& stacks);
    void carry_out(HangStep step, Instant now);
    void send_seen(Instant now);
    /// Requests its flight record from the server in the worker. `aloud`: prints the result.
    void ask_torch(std::uint32_t local_rank, bool as_notice);
    [[nodiscard]] std::vector<WorkerActivity> with_torch(std::vector<WorkerActivity> all) const;

    boost::asio::steady_timer timer_;
    HangWatch watch_;
    SideRuns stacks_;
    TorchDump torch_;
    TorchServer torch_server_;
    std::uint32_t rank_base_ = 0;
    Instant began_at_{};                                     ///< Of the round.
    std::map<std::uint32_t, Worker> workers_;                ///< Running workers, keyed by local rank.
    std::optional<std::vector<WorkerActivity>> activities_;  ///< The places when the round failed.
    std::optional<Instant> seen_sent_at_;
    std::map<std::int32_t, native::WorkerPace> paces_sent_;  ///< Ranks whose pace is not `usual`.
    std::size_t stepped_sent_ = 0;                           ///< Workers that had reported a step then.
    SectionTimes sections_;                                  ///< Of this round.
    /// Keyed by rank: its operation when it was last idle for long.
    std::map<std::int32_t, TorchOperation> torch_operations_;
    bool resting_ = true;
    Life life_;
};

}  // namespace muster::agent
