// How a lane's thread processes its queue.
//
// Most transports run one operation after another. If the transport can launch a collective behind others (on a GPU's
// stream), it is launched as soon as it is started. The GPU then proceeds without waiting for the host. The thread
// waits for the end of the oldest operation, and wakes when there is another one to launch.
#include "worker_runtime/communicator/communicator_lane.h"

#include <algorithm>
#include <utility>

namespace muster::runtime {

namespace {

/// The limit of operations in flight. More would gain nothing: the host is far ahead of the GPU.
constexpr std::size_t launched_max = 16;

/// The interval between checks whether the oldest operation is complete.
constexpr Duration pause_min = 10us;
constexpr Duration pause_max = 100us;

Instant now() {
    return std::chrono::steady_clock::now();
}

}  // namespace

void CommunicatorBody::serve(Lane& lane) {
    std::unique_lock lock(lane.mutex);
    const auto can_launch = [&] {
        return !lane.queue.empty() && lane.launched.size() < launched_max &&
               transport_->launches(lane.queue.front().operation);
    };
    Duration pause = pause_min;
    for (;;) {
        if (lane.launched.empty()) {
            lane.changed.wait(lock, [&lane] { return !lane.busy && (lane.stop || !lane.queue.empty()); });
            if (lane.queue.empty()) return;
        }
        if (can_launch()) {
            lane.busy = true;
            launch_next(lane, lock);
            pause = pause_min;
        } else if (lane.launched.empty()) {
            run_next(lane, lock);
        } else {
            lock.unlock();
            const auto over = transport_->oldest_over(
                {.deadline = lane.launched.front().turn + lane.launched.front().timeout, .patience = WaitMode::frugal});
            lock.lock();
            if (over && !*over) {
                lane.changed.wait_for(lock, pause, can_launch);
                pause = std::min(pause * 2, pause_max);
                continue;
            }
            end_oldest(lane, over ? Result<void>() : Result<void>(fail(over.error())));
            pause = pause_min;
        }
    }
}

void CommunicatorBody::run_next(Lane& lane, std::unique_lock<std::mutex>& lock) {
    const Lane::Started next = std::move(lane.queue.front());
    lane.queue.pop_front();
    lane.busy = true;
    lock.unlock();
    const Instant began = now();
    const auto done = execute(lane, next.operation, next.timeout, WaitMode::frugal);
    next.state->took = now() - began;
    lock.lock();
    // Reset before finish(): a woken waiter may destroy the communicator or call run().
    lane.no_longer_busy();
    finish(*next.state, done);
}

void CommunicatorBody::launch_next(Lane& lane, std::unique_lock<std::mutex>& lock) {
    const Lane::Started next = std::move(lane.queue.front());
    lane.queue.pop_front();
    lock.unlock();
    const auto entry = terms_.flight ? terms_.flight->begin(flight_group_, ++lane.number, next.operation) : 0;
    ProfileRange range([&] { return range_name(next.operation); });
    const Instant began = now();
    auto launched = status();
    if (launched) {
        launched = transport_->launch(next.operation, {.deadline = began + next.timeout, .patience = WaitMode::frugal});
    }
    lock.lock();
    lane.launched.push_back({.timeout = next.timeout,
                             .state = next.state,
                             .flight_entry = entry,
                             .range = std::move(range),
                             .turn = began});
    if (launched) return;
    // The earlier operations are of the same communicator, which has failed.
    const auto failed = Result<void>(fail(launched.error()));
    while (!lane.launched.empty()) end_oldest(lane, failed);
}

void CommunicatorBody::end_oldest(Lane& lane, const Result<void>& done) {
    auto oldest = std::move(lane.launched.front());
    lane.launched.pop_front();
    oldest.range.end();
    oldest.state->took = now() - oldest.turn;
    if (!lane.launched.empty()) lane.launched.front().turn = now();
    if (terms_.flight) terms_.flight->end(oldest.flight_entry, done.has_value());
    if (lane.launched.empty()) lane.no_longer_busy();  // reset before finish(), as above
    finish(*oldest.state, done);
}

}  // namespace muster::runtime
