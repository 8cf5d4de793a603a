// Looks at the workers once a second and carries out what diagnosis/hang_watch.h decides.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/diagnosis/hang_watch.h"
#include "agent/diagnosis/stack_text.h"
#include "agent/evidence/torch_dump.h"
#include "agent/evidence/torch_server.h"
#include "agent/process/side_runs.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/wire/native/failure_cause.h"

namespace muster::agent {

class HangWatcher {
  public:
    /// What a worker tells about itself, asked at each look.
    struct Told {
        std::string section;
        Duration section_limit{};
        std::uint64_t heartbeats = 0;
        std::optional<OperationLook> operation;
        std::optional<std::int64_t> step;  ///< of the training, the last that it told of
        std::string torch_socket;          ///< of torch's handlers in it; empty: none
        std::string torch_file;            ///< where its dump is to lie
    };

    /// `environment` is the workers'.
    HangWatcher(boost::asio::io_context& loop, HangConfig config,
                const std::map<std::string, std::string>& environment);

    std::function<Told(std::uint32_t local_rank)> ask;
    std::function<void(std::string)> on_notice;
    /// Called with what was seen of the workers: after their start, then every ten seconds, and at once when one of
    /// them is overdue or waits for long, and when it is no longer so.
    std::function<void(std::vector<native::SeenWorker>)> on_seen;

    void begin_round(std::uint32_t rank_base);
    void worker_started(std::uint32_t local_rank, std::int32_t pid);
    /// Of the round that runs.
    void job_seen(const native::JobSeen& seen);
    /// `hung` where it ended because this watcher had ended it; else unknown.
    FailureCause worker_ended(std::uint32_t local_rank);
    /// The round is over because something failed: says what this node's idle workers were at.
    void round_failed();
    /// Where those stood at that moment, or those that ended before it; of this round.
    [[nodiscard]] std::vector<Whereabouts> whereabouts() const;
    /// The workers are being stopped: nobody is looked at until the next round.
    void rest();

  private:
    struct Worker {
        std::int32_t pid = 0;
        std::int32_t program = 0;  ///< what it waits for, where it is a shell around it; else itself
        FileDescriptor pidfd;      ///< so that a number that is used again is not signalled; invalid: nobody is ended
        std::string ended_why;
        char state = '?';                                         ///< at the last look
        std::vector<std::function<void(const StackText&)>> want;  ///< its stacks; not empty: they are being taken
    };

    void arm();
    void look();
    [[nodiscard]] WorkerLook look_at(std::uint32_t local_rank, Worker& worker) const;
    /// Calls `use` once they are known, unless the worker ends before or is left alone from then on.
    void take_stacks(std::uint32_t local_rank, std::function<void(const StackText&)> use);
    void stacks_taken(std::uint32_t local_rank, std::int32_t pid, const std::string& output);
    void tell_stacks(std::uint32_t local_rank);
    void ask_place(std::uint32_t local_rank);
    void end(const EndOrder& order, const StackText& stacks);
    void carry_out(HangStep step, Instant now);
    void tell_seen(Instant now);
    /// For its flight record, by the server that the worker runs. `aloud`: what comes of it is told.
    void ask_torch(std::uint32_t local_rank, bool aloud);
    [[nodiscard]] std::vector<Whereabouts> with_torch(std::vector<Whereabouts> all) const;

    boost::asio::steady_timer timer_;
    HangWatch watch_;
    SideRuns stacks_;
    TorchDump torch_;
    TorchServer torch_server_;
    std::uint32_t rank_base_ = 0;
    std::map<std::uint32_t, Worker> workers_;              ///< by local rank; those that run
    std::optional<std::vector<Whereabouts>> whereabouts_;  ///< when the round failed
    std::optional<Instant> seen_told_at_;
    std::map<std::int32_t, native::WorkerPace> paces_told_;    ///< by rank; those that are not usual
    std::map<std::int32_t, TorchOperation> torch_operations_;  ///< by rank: when it was last idle for long
    bool resting_ = true;
    std::shared_ptr<char> life_ = std::make_shared<char>();  ///< handlers hold it weakly
};

}  // namespace muster::agent
