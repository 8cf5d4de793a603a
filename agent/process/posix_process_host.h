// ProcessHost over a guardian (guardian.h) and an output pump (output_pump.h).
#pragma once

#include <memory>
#include <string>

#include "agent/output/output_pump.h"
#include "agent/process/guardian.h"
#include "agent/process/standbys.h"
#include "agent/supervision/process_host.h"

namespace boost::asio {
class io_context;
}

namespace muster::agent {

/// The real process host. Calls and events belong to the one thread that runs `context`; the pump has threads of its
/// own, so that a dead disk or a stopped terminal never stops the loop.
///
/// A worker's last output is read before its WorkerEnded is delivered; a grandchild that keeps the pipe open delays it
/// by 100 ms at most, and what it writes later is still shown.
class PosixProcessHost final : public ProcessHost {
  public:
    PosixProcessHost(boost::asio::io_context& context, GuardianHandle guardian, Console console = {});
    /// The end in order: the guardian kills what is left and exits without calling on_agent_death; waits for that (2 s
    /// at most) and for the console to take what was printed (1 s at most). Must not run inside on_event.
    ~PosixProcessHost() override;

    void start(std::vector<WorkerCommand> commands) override;
    void signal_leaders(int signal) override;
    void follow_up(int signal, AwaitedTimeouts patience) override;
    void keep(const std::vector<std::uint32_t>& local_ranks) override;
    void change_owner(std::uint32_t local_rank, const LogOwner& owner) override;
    void signal_group(std::uint32_t local_rank, int signal) override;
    void kill_tree() override;
    void kill_guardian() override;
    void feed() override;
    void remove_after_death(std::string folder) override;

    void expect(const std::vector<WorkerCommand>& commands, std::function<void()> when_ready) override;
    void end_standbys() override;
    /// From the next start() or expect() on; call it at most once, before that.
    void keep_standbys(StandbyPlan plan);
    /// Lines for the user. May be empty.
    std::function<void(std::string)> on_notice;
    /// How many standby processes there are, and their memory. May be empty.
    std::function<void(native::StandbysSeen)> on_standbys;

    /// What the guardian's on_agent_death is to be given, at most 64 KiB; each call replaces the last.
    void set_death_notice(std::string bytes);

  private:
    class Body;
    std::shared_ptr<Body> body_;  // shared with the handlers that are under way
};

}  // namespace muster::agent
