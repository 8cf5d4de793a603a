// A queue of operations that run in order, with its thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/communicator/profile_range.h"

namespace muster::runtime {

struct CommunicatorBody::Lane {
    struct Started {
        Operation operation;
        Duration timeout;
        std::shared_ptr<WorkState> state;
    };
    /// An operation that was launched on the transport and is not complete.
    struct Launched {
        Duration timeout;
        std::shared_ptr<WorkState> state;
        std::uint64_t flight_entry;
        ProfileRange range;
        Instant turn;  ///< the end of the previous operation, or the launch
    };
    std::mutex mutex;
    std::condition_variable changed;  ///< wakes the thread of the queue
    std::condition_variable idle;     ///< for allocate(): nothing runs and nothing is queued
    std::deque<Started> queue;
    std::deque<Launched> launched;  ///< oldest first; used by the lane's thread only
    bool busy = false;              ///< an operation runs in some thread
    bool stop = false;
    std::uint64_t number = 0;  ///< number of operations begun here
    std::thread thread;

    /// Call with the mutex held. There are two conditions so that a run() does not wake the thread, which has no work
    /// then.
    void no_longer_busy() {
        busy = false;
        if (queue.empty()) idle.notify_all();
        if (!queue.empty() || stop) changed.notify_all();
    }
};

/// A text such as "muster all_reduce avg f32 x 1024 #3" for profilers. #3 is the low half of the tag, which is the
/// number of the bucket.
inline std::string range_name(const Operation& operation) {
    return cat("muster ", describe(operation), " #", operation.tag & 0xffff);
}

inline void finish(WorkState& state, const Result<void>& result) {
    {
        const std::lock_guard lock(state.mutex);
        if (!result) state.failure = result.error();
        state.over.store(true, std::memory_order_release);
    }
    state.changed.notify_all();
}

}  // namespace muster::runtime
