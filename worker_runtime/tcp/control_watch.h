// Receives on a group's control connections at all times, in the thread of an FdWatch: also while this process
// computes, or waits in shared memory or in another communicator.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/tcp/tcp_group.h"
#include "worker_runtime/transport/fd_watch.h"

namespace muster::runtime {

class ControlWatch {
  public:
    /// `group` outlives this.
    ControlWatch(TcpGroup& group, std::shared_ptr<FdWatch> watch) : group_(group), watch_(std::move(watch)) {}
    ~ControlWatch() {
        for (const auto id : watched_) watch_->remove(id);
    }
    ControlWatch& operator=(ControlWatch&&) = delete;

    /// `hear` listens to a rank, and is called again when that says more, as long as it returns true. `failed` learns
    /// of a failure that came over another connection than those.
    Result<void> begin(
        const std::function<bool(int rank)>& hear,
        const std::function<void(const Error& why)>& failed = [](const Error&) {}) {
        for (const int rank : group_.partners()) {
            auto id = MUSTER_TRY(watch_->add(group_.peer(rank).control.socket(), [hear, rank] { return hear(rank); }));
            watched_.push_back(id);
        }
        if (group_.is_whole()) return {};
        auto id = MUSTER_TRY(watch_->add(group_.late_bell(), [group = &group_, failed] {
            if (group->serve_late()) return true;
            failed(group->failure());
            return false;
        }));
        watched_.push_back(id);
        return {};
    }

  private:
    TcpGroup& group_;
    const std::shared_ptr<FdWatch> watch_;
    std::vector<std::uint64_t> watched_;
};

}  // namespace muster::runtime
