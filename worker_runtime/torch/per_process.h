// What exists once in a process.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace muster::torch_backend {

/// How many forks lie between the program's start and this process. Costs no call of the kernel, as getpid() does.
inline std::atomic<std::uint32_t> fork_count = 0;
inline const int fork_count_is_kept = ::pthread_atfork(nullptr, nullptr, [] { ++fork_count; });

/// The process's T. A forked child gets a T of its own: its parent's counts threads that are not in the child, and its
/// mutexes may be locked for ever, so that one is not even looked at. Never destroyed: threads may run until the end.
template <class T>
T& of_this_process() {
    struct Owned {
        std::uint32_t owner = fork_count;
        T object;
    };
    static std::atomic<Owned*> newest = nullptr;
    for (auto* found = newest.load();;) {
        if (found != nullptr && found->owner == fork_count) return found->object;
        auto* const fresh = new Owned;
        if (newest.compare_exchange_strong(found, fresh)) return fresh->object;
        delete fresh;
    }
}

}  // namespace muster::torch_backend
