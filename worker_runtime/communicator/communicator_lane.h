// A queue of operations that must not overtake each other, with the thread that serves it.
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
    /// Handed to the transport, and not over.
    struct Launched {
        Duration timeout;
        std::shared_ptr<WorkState> state;
        std::uint64_t flight_entry;
        ProfileRange range;
        Instant turn;  ///< when the one before was over, or when it was launched
    };
    std::mutex mutex;
    std::condition_variable changed;  ///< for the thread that serves the queue
    std::condition_variable idle;     ///< for allocate(): nothing runs, nothing is queued
    std::deque<Started> queue;
    std::deque<Launched> launched;  ///< oldest first; of the lane's thread alone
    bool busy = false;              ///< an operation runs, in whatever thread
    bool stop = false;
    std::uint64_t number = 0;  ///< operations begun here
    std::thread thread;

    /// With the mutex held. Two conditions, so that a run() does not wake the thread, which has nothing to do then.
    void no_longer_busy() {
        busy = false;
        if (queue.empty()) idle.notify_all();
        if (!queue.empty() || stop) changed.notify_all();
    }
};

/// "muster all_reduce avg f32 x 1024 #3", for profilers: with the low half of the tag, which is the reducer's number of
/// the bucket.
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
