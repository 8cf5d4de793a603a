// Receives from whichever rank has sent.
#include <algorithm>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/communicator/communicator_lane.h"

namespace muster::runtime {

namespace {

/// Between looks at all ranks.
constexpr Duration look_pause_min = 20us;
constexpr Duration look_pause_max = 1ms;

}  // namespace

Result<int> CommunicatorBody::receive_any(Buffer buffer, std::uint32_t tag, Duration timeout) {
    const Instant began = std::chrono::steady_clock::now();
    const Instant deadline = began + std::min(timeout, timeout_max);
    Operation operation = receive(buffer, rank() == 0 ? 1 : 0);
    operation.tag = tag;
    if (size() == 1) return Error{Errc::invalid_argument, "a world of one has no rank to receive from"};
    MUSTER_TRY(check(operation));
    for (Duration pause = look_pause_min;; pause = std::min(2 * pause, look_pause_max)) {
        int left_count = 0;
        for (operation.peer = 0; operation.peer < size(); ++operation.peer) {
            if (operation.peer == rank()) continue;
            const Duration time_left = deadline - std::chrono::steady_clock::now();
            const auto received = MUSTER_TRY(receive_if_there(operation, std::max<Duration>(time_left, 1ms)));
            if (received == Incoming::message) return operation.peer;
            if (received == Incoming::left) ++left_count;
        }
        if (left_count == size() - 1)
            return fail(transport_->fail(
                {Errc::peer_closed, cat("communicator ", terms_.group.id, ": rank ", terms_.group.in_root(rank()),
                                        " receives from any rank, and all others have closed the communicator")}));
        MUSTER_TRY(check_alive(began));
        if (std::chrono::steady_clock::now() >= deadline)
            return fail(transport_->fail(
                {Errc::timed_out, cat("communicator ", terms_.group.id, ": rank ", terms_.group.in_root(rank()),
                                      " received nothing from any rank within ", muster::describe(timeout))}));
        std::this_thread::sleep_for(pause);
    }
}

/// Another receive from this rank, in progress or queued, is before this one.
Result<Incoming> CommunicatorBody::receive_if_there(const Operation& operation, Duration timeout) {
    Lane& lane = lane_of(operation);
    {
        const std::lock_guard lock(lane.mutex);
        if (lane.busy || !lane.queue.empty()) return Incoming::nothing;
        lane.busy = true;
    }
    const auto there = transport_->incoming(operation.peer);
    const auto done =
        there && *there == Incoming::message ? execute(lane, operation, timeout, WaitMode::eager) : Result<void>();
    {
        const std::lock_guard lock(lane.mutex);
        lane.no_longer_busy();
    }
    if (!done) return done.error();
    return there;
}

}  // namespace muster::runtime
