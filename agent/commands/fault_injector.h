// Injects faults into parts of this node (muster fault; FAULTS.md has the table). It records what it did to a worker,
// so that the worker's end is reported with its true cause.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/commands/starved_worker.h"
#include "agent/diagnosis/end_cause.h"
#include "agent/supervision/fault_rules.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/failure_cause.h"

namespace muster::agent {

class FaultInjector {
  public:
    enum class Faults { refused, allowed };
    FaultInjector(boost::asio::io_context& loop, Faults faults) : loop_(loop), faults_(faults) {}

    /// To be set before the first order: cuts this agent off from the daemon and its peers.
    std::function<void(Duration length)> cut_off;

    /// The workers of these local ranks stay in their processes, and a fault in them goes on.
    void begin_round(Round round, std::uint32_t rank_base, const std::vector<std::uint32_t>& kept);
    void worker_started(std::uint32_t local_rank, std::int32_t pid);
    /// Who sent the SIGKILL, if one ended it.
    [[nodiscard]] Killer killer_of(std::uint32_t local_rank) const;
    /// Of a worker that failed at this instant: the cause names what was injected into it, if that may have been it.
    void worker_ended(std::uint32_t local_rank, Instant at, FailureCause& cause);

    /// Does it, or says why not. What is done to the agent itself begins a moment later, when the answer is out.
    native::FaultAnswer inject(const native::FaultOrdered& order);

  private:
    struct Worker {
        Worker(boost::asio::io_context& loop, std::int32_t process, FileDescriptor descriptor)
            : pid(process), pidfd(std::move(descriptor)), timer(loop) {}
        std::int32_t pid;
        FileDescriptor pidfd;
        boost::asio::steady_timer timer;  ///< Ends a stop or a slow phase.
        Instant until{};
        bool stopped = false;
        native::Fault fault;
        std::string injected;  ///< Description of the latest fault. Empty: none.
        Instant injected_at{};
        std::optional<StarvedWorker> starved;
    };

    Result<void> into_worker(Worker& worker, const native::Fault& fault);
    Result<void> into_agent(const native::Fault& fault);
    void next_turn(std::uint32_t local_rank, Duration length);
    void turn(std::uint32_t local_rank);

    boost::asio::io_context& loop_;
    Faults faults_;
    Round round_ = no_round;
    std::uint32_t rank_base_ = 0;
    std::map<std::uint32_t, Worker> workers_;  ///< Running workers, keyed by local rank.
    Life life_;
};

}  // namespace muster::agent
