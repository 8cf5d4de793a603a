// Looks at the workers once a second and carries out what core/hang_watch.h decides.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/core/hang_watch.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/wire/native/failure_cause.h"

namespace muster::agent {

class HangWatcher {
  public:
    /// What a worker tells about itself, asked at each look.
    struct Told {
        std::string section;
        std::optional<OperationLook> operation;
    };

    HangWatcher(boost::asio::io_context& loop, HangConfig config) : timer_(loop), watch_(config) {}

    std::function<Told(std::uint32_t local_rank)> ask;
    std::function<void(std::string)> on_notice;

    void begin_round(std::uint32_t rank_base);
    void worker_started(std::uint32_t local_rank, std::int32_t pid);
    /// `hung` where it ended because this watcher had ended it; else unknown.
    FailureCause worker_ended(std::uint32_t local_rank);
    /// The workers are being stopped: nobody is looked at until the next round.
    void rest();

  private:
    struct Worker {
        std::int32_t pid = 0;
        FileDescriptor pidfd;  ///< so that a number that is used again is not signalled; invalid: nobody is ended
        std::string ended_why;
    };

    void arm();
    void look();
    [[nodiscard]] WorkerLook look_at(std::uint32_t local_rank, const Worker& worker) const;
    void end(const EndOrder& order);

    boost::asio::steady_timer timer_;
    HangWatch watch_;
    std::uint32_t rank_base_ = 0;
    std::map<std::uint32_t, Worker> workers_;  ///< by local rank; those that run
    bool resting_ = true;
    std::shared_ptr<char> life_ = std::make_shared<char>();  ///< handlers hold it weakly
};

}  // namespace muster::agent
