// The driver of one node's agent: client events + process events + signals -> supervisor -> actions.
//
// Supervisor (supervision/supervisor.h) makes all decisions about the domain. The driver carries them out. It prepares
// the workers' commands, directories and channels. It collects the facts about a failed worker (clock, error file, last
// lines of stderr). It handles the timer and signals, and feeds the guardian every lease/10 while the connection allows
// it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/driver/agent_config.h"
#include "agent/supervision/process_host.h"
#include "agent/supervision/round_store_host.h"
#include "agent/supervision/supervisor.h"
#include "rendezvous/base/text/metrics_page.h"
#include "rendezvous/client/rendezvous_link.h"

namespace muster::agent {

class Agent {
  public:
    /// All references must outlive the agent; everything runs on `loop`'s one thread.
    Agent(boost::asio::io_context& loop, AgentConfig config, rendezvous::RendezvousLink& link, ProcessHost& host,
          RoundStoreHost& stores);
    ~Agent();
    Agent& operator=(Agent&&) = delete;

    /// Makes the log base, installs the handlers and joins. Once. Also an error at this stage comes as an Ending.
    void start();

    /// Below it are the log files of this node's workers. Empty: there are none, or it has not started.
    [[nodiscard]] std::string log_folder() const;
    /// Those of workers that are held from one round to the next.
    [[nodiscard]] std::vector<std::string> kept_logs() const;
    /// What the workers of this node do, for Prometheus.
    [[nodiscard]] std::string metrics(MetricsFormat format) const;
    /// Where the workers of this node are, as HangWatcher::tell_stacks.
    void tell_stacks(const std::optional<std::set<std::uint32_t>>& ranks, std::function<void(std::string)> use);

    /// Called once, from the loop, when the workers are gone, the link is closed and nothing is left to wait for.
    std::function<void(Ending)> on_end;
    /// Called before on_end where a step that this node's memory had at the end is not on the disk: which one, why, and
    /// which step is safe. A job that succeeded has not kept its word then.
    std::function<void(std::string)> on_unsaved;
    /// A handled signal, or the preemption signal, has come. May be empty.
    std::function<void(int)> on_signal;
    /// What happened on this node, without its job. May be empty.
    std::function<void(const Event&)> on_event;
    /// Lines for the person at the launcher: "waiting for 1 more node ...", "round 0 ended: ...". May be empty.
    std::function<void(std::string)> on_progress;

  private:
    class Driver;
    std::shared_ptr<Driver> driver_;  // shared with the handlers under way
};

}  // namespace muster::agent
