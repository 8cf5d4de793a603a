// The guardian that serves, a second one that stands by, and the change from one to the other.
//
//   agent -> guardian -> workers
//         -> guardian that stands by (nothing below it)
//
// When the serving one is killed its workers die by their parent-death signal, and what they had started becomes this
// process's own, which is a subreaper too. That is killed and reaped here until nothing is left; then the second one
// takes over and forks the next. A guardian that is forked by a guardian (Beget) is forked by a process of one thread,
// which the agent has long ceased to be.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/process/guardian.h"
#include "agent/process/guardian_link.h"

namespace muster::agent {

/// Lives in a shared_ptr, because handlers that are under way hold it. Callbacks come from the loop; after end() there
/// are none.
class GuardianPair : public std::enable_shared_from_this<GuardianPair> {
  public:
    GuardianPair(boost::asio::io_context& context, GuardianHandle guardian);

    std::function<void(const guardian_wire::Message&)> on_message;
    /// A worker (or what one left) whose guardian is lost was reaped here, with this end.
    std::function<void(pid_t pid, WorkerEnd end)> on_reaped;
    /// The guardian was lost and what it guarded is gone. `replaced`: another one serves from now on.
    std::function<void(const std::string& why, Instant at, bool replaced)> on_lost;

    void begin();
    /// The end in order: waits for both to have killed what is left and to be gone, 2 s at most. One that is not gone
    /// then may be stopped: it is killed, and what it guarded too, for which there are 2 s more.
    void end();

    /// To the serving one; while there is none, nothing happens.
    void send(const guardian_wire::Message& message, std::vector<FileDescriptor> fds = {});
    /// The serving one does not do what it is told: it counts as lost from now on, and is killed.
    void give_up();
    /// Kept, so that a successor gets it too.
    void set_death_notice(std::string bytes);
    /// Kept likewise: the guardian removes what of it is empty, should this process die.
    void remove_after_death(std::string folder);
    /// Where none stands by, one is asked for again.
    void ask_for_reserve();

    enum class State {
        serving,
        changing,  ///< The guardian is lost, and its tree is being removed.
        none,      ///< The guardian is lost, and there was no reserve.
    };
    [[nodiscard]] State state() const { return state_; }

  private:
    struct Guardian {
        pid_t pid = 0;  ///< 0: requested, not known yet.
        FileDescriptor pidfd;
        std::shared_ptr<GuardianLink> link;
    };

    void listen();
    void begotten(const guardian_wire::ReserveForked& begotten);
    void reserve_lost();
    void lose(std::string why);
    void clean_up(Instant deadline);
    bool kill_and_reap_orphans();
    void change(bool empty);

    boost::asio::io_context& context_;
    std::string cgroup_;
    std::string death_notice_;
    std::string folder_;
    Guardian serving_;
    std::optional<Guardian> reserve_;
    int reserve_forks_ = 0;
    State state_ = State::serving;
    std::string lost_why_;
    Instant lost_at_{};
    boost::asio::steady_timer clean_up_timer_;
};

}  // namespace muster::agent
