// Turns outside happenings into the supervisor's events (agent.cpp), and its actions into calls (agent_actions.cpp).
// Private to these two.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "agent/channel/agent_persister.h"
#include "agent/channel/timer_fifo.h"
#include "agent/commands/command_socket.h"
#include "agent/commands/fault_injector.h"
#include "agent/driver/agent.h"
#include "agent/driver/metrics_file.h"
#include "agent/driver/store_reach.h"
#include "agent/driver/worker_commands.h"
#include "agent/evidence/end_evidence.h"
#include "agent/evidence/gpu_check.h"
#include "agent/evidence/hang_watcher.h"
#include "agent/output/log_directory.h"

namespace muster::agent {

/// Shared with the handlers under way, which hold it weakly: after ~Agent none of them does anything.
class Agent::Driver : public std::enable_shared_from_this<Driver> {
  public:
    Driver(Agent& agent, boost::asio::io_context& loop, AgentConfig config, rendezvous::RendezvousLink& link,
           ProcessHost& host, RoundStoreHost& stores);

    void start();
    [[nodiscard]] std::string log_folder() const { return writes_files(config_.logs) ? logs_.made() : std::string(); }
    [[nodiscard]] std::vector<std::string> kept_logs() const { return commands_.kept_logs(); }
    [[nodiscard]] std::string metrics(MetricsFormat format) const;
    void tell_stacks(const std::optional<std::set<std::uint32_t>>& ranks, std::function<void(std::string)> use) {
        hangs_.tell_stacks(ranks, std::move(use));
    }

  private:
    /// A handler that does nothing after ~Agent, and keeps this object while it runs.
    template <class Run>
    auto guarded(Run run) {
        return [weak = weak_from_this(), run = std::move(run)](auto&&... what) mutable {
            if (const auto self = weak.lock()) run(std::forward<decltype(what)>(what)...);
        };
    }
    template <class Event>
    auto forward() {
        return guarded([this](auto what) {
            reach_.hurry();
            happen(Event{std::move(what)});
        });
    }
    void listen();
    void take_commands();
    void answer(native::CommandAnswer answer);
    void wait_for_signal();
    void feed();
    void arm_deadline();

    void on_daemon_message(native::Message message);
    void fence_held_workers();
    void find_store(native::Assigned assignment);
    void relay_store(native::Assigned& assignment);
    void tell(const Event& event);
    void happen(SupervisorEvent event);
    void keep_standbys(const SupervisorEvent& event);
    void host_said(ProcessEvent event);
    void refuse_start(std::uint32_t local_rank, const std::string& why);
    static Instant now() { return std::chrono::steady_clock::now(); }
    WorkerNotes notes_at(Instant at) const;
    void settle_flight_records(bool job_succeeded);

    void look_at_node();
    void send_last_steps();
    std::optional<SetUpRefused> set_up();
    void write_metrics();

    // One for each action.
    void carry_out(const CheckHealth& action);
    void carry_out(const OpenStore&) { happen(StoreOpened{stores_.open()}); }
    void carry_out(const CloseStore&) { stores_.close(); }
    void carry_out(const SendJoin& action);
    void carry_out(const StartWorkers& action);
    void carry_out(const StartAgain& action);
    void carry_out(const KeepWorkers& action);
    void carry_out(const SendHold& action);
    void carry_out(const SendRoundOver& action);
    void carry_out(const NotifyWorkers& action) { commands_.send_to_all(local::Notice{.why = action.why}); }
    void carry_out(const SignalWorkers& action);
    void carry_out(const SignalGroup& action) { host_.signal_group(action.local_rank, action.signal); }
    void carry_out(const PreemptWorkers& action);
    void carry_out(const SendCommand& action) { link_.submit(action.command); }
    void carry_out(const KillTree& action);
    void carry_out(const KillGuardian&) { host_.kill_guardian(); }
    void carry_out(const ReportFailed& action);
    void carry_out(const ReportSucceeded& action);
    void carry_out(const ReportRound& action);
    void carry_out(const SendLeave& action);
    void carry_out(const AcknowledgeEnd&) { link_.submit(native::EndAcknowledged{}); }
    void carry_out(const Finish& action);

    Agent& agent_;
    AgentConfig config_;
    rendezvous::RendezvousLink& link_;
    ProcessHost& host_;
    RoundStoreHost& stores_;
    LogDirectory logs_;
    WorkerCommands commands_;
    ClosingPtr<AgentPersister> persister_;
    EndEvidence evidence_;
    HangWatcher hangs_;
    TimerFifo timers_;
    GpuCheck gpus_;
    NodeLooks preflight_;
    HealthCheck health_;
    FaultInjector faults_;
    Supervisor supervisor_;
    StoreReach reach_;
    std::string store_trouble_;  ///< Why this round's workers cannot reach their store. Empty: they can.
    std::string asked_master_;   ///< Master address of the static back end as the user wrote it. It may resolve
                                 ///< differently in each round.
    boost::asio::io_context& loop_;
    boost::asio::signal_set signals_;
    boost::asio::steady_timer deadline_;
    boost::asio::steady_timer feeding_;
    boost::asio::steady_timer measuring_;  ///< The metrics file is written when it fires.
    std::unique_ptr<MetricsFile> metrics_file_;
    boost::asio::steady_timer looking_;    ///< The preflight begins when it fires.
    std::deque<SupervisorEvent> pending_;  // an action may bring the next event at once (OpenStore)
    bool stepping_ = false;
    bool has_ended_standbys_ = false;
    bool finishing_ = false;  // what is left to do is the persister's
    ClosingPtr<CommandSocket> command_socket_;
    std::map<std::uint32_t, std::int32_t> worker_pids_;  // by local rank, those that run
};

}  // namespace muster::agent
