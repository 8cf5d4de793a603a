// The serving guardian, its reserve, and the change from one to the other.
//
//   agent -> serving guardian -> workers
//         -> reserve guardian (no children)
//
// When the serving guardian is killed, its workers die by their parent-death signal. Their children become children of
// this process, which is a subreaper too. It kills and reaps them until none is left. Then the reserve takes over and
// forks the next reserve. A guardian forks its successor (ForkReserve), because it has one thread, and the agent has
// several.
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
    void give_up() { lose("it did not kill the workers when ordered, and was killed"); }
    /// Kept, so that a successor gets it too.
    void set_death_notice(std::string bytes);
    /// Kept likewise: the guardian removes what of it is empty, should this process die.
    void remove_after_death(std::string folder);
    /// Where none stands by, one is asked for again.
    void ask_for_reserve();
    /// Programs beside the agent (side_process.h) may leave processes behind in sessions of their own, which become
    /// this process's children. Reaps those that have ended.
    void reap_left_behind();

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
