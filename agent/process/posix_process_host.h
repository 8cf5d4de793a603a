// ProcessHost over a guardian (guardian.h) and an output pump (output_pump.h).
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

#include "agent/output/output_pump.h"
#include "agent/process/guardian.h"
#include "agent/process/guardian_pair.h"
#include "agent/process/standbys.h"
#include "agent/supervision/process_host.h"
#include "rendezvous/base/closing_ptr.h"

namespace muster::agent {

/// The real process host. Calls and events belong to the one thread that runs `context`; the pump has threads of its
/// own, so that a dead disk or a stopped terminal never stops the loop.
///
/// A worker's last output is read before its WorkerEnded is delivered; a grandchild that keeps the pipe open delays it
/// by 100 ms at most, and what it writes later is still shown.
class PosixProcessHost final : public ProcessHost, public std::enable_shared_from_this<PosixProcessHost> {
  public:
    static ClosingPtr<PosixProcessHost> make(boost::asio::io_context& context, GuardianHandle guardian,
                                             Console console = {});
    /// The end in order: the guardian kills what is left and exits without calling on_agent_death; waits for that (2 s
    /// at most) and for files and console to take what was printed (5 s at most each). Must not run inside on_event.
    void close();

    void start(std::vector<WorkerCommand> commands) override;
    void signal_leaders(int signal) override;
    void follow_up(int signal, AwaitedTimeouts patience) override;
    void keep(const std::vector<std::uint32_t>& local_ranks) override;
    void change_owner(std::uint32_t local_rank, const LogOwner& owner) override;
    void signal_group(std::uint32_t local_rank, int signal) override;
    void kill_tree() override;
    void kill_guardian() override;
    void feed() override { guardians_->send(guardian_wire::Feed{}); }
    void remove_after_death(std::string folder) override;
    void reap_left_behind() override { guardians_->reap_left_behind(); }

    void expect(const std::vector<WorkerCommand>& commands, std::function<void()> when_ready) override;
    void end_standbys() override {
        if (standbys_) standbys_->end();
    }
    /// From the next start() or expect() on; call it at most once, before that.
    void keep_standbys(StandbyPlan plan);
    /// Lines for the user. May be empty.
    std::function<void(std::string)> on_notice;
    /// How many standby processes there are, and their memory. May be empty.
    std::function<void(native::StandbysSeen)> on_standbys;

    /// What the guardian's on_agent_death is to be given, at most 64 KiB; each call replaces the last.
    void set_death_notice(std::string bytes);

  private:
    struct Worker {
        std::uint32_t local_rank = 0;
        std::int32_t pid = 0;
        bool had_standby = false;  ///< Its standby process was to become it.
        /// Set when it has ended and only its output is waited for.
        std::optional<WorkerEnded> ended;
        std::unique_ptr<boost::asio::steady_timer> settle_timer;
    };

    PosixProcessHost(boost::asio::io_context& context, GuardianHandle guardian, Console console);
    void begin();
    void start_one(const WorkerCommand& command);
    bool held_back(std::function<void()> call);
    void send_spawn(guardian_wire::Spawn spawn, const WorkerCommand& command, std::vector<FileDescriptor> streams);
    void handle(const guardian_wire::Message& message);
    void ended(std::uint64_t id, WorkerEnded event);
    void group_emptied(std::uint64_t id);
    void settled(std::uint64_t id);
    void deliver(ProcessEvent event);
    void deliver_waiting();
    void refuse(std::uint64_t id, NotStarted why);
    void reaped(pid_t pid, WorkerEnd end);
    void guardian_lost(GuardianLost lost);

    boost::asio::io_context& context_;
    bool closed_ = false;
    std::shared_ptr<GuardianPair> guardians_;
    ClosingPtr<OutputPump> pump_;
    std::map<std::uint64_t, Worker> workers_;
    std::optional<Standbys> standbys_;
    /// Keyed by local rank: an ended worker whose process group is not empty.
    std::map<std::uint32_t, std::uint64_t> groups_;
    std::uint64_t next_id_ = 1;
    std::vector<ProcessEvent> waiting_;  ///< TreeEmpty and similar events, delivered when no ended worker is pending.
    std::vector<std::function<void()>> held_back_;  ///< Calls that wait while the guardian is replaced, in order.
    bool kill_asked_ = false;                       ///< True until TreeEmpty has been delivered.
    std::uint64_t kill_count_ = 0;                  ///< Number of the newest Kill.
};

}  // namespace muster::agent
