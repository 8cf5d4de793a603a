// What exists once in a process.
#pragma once

#include <unistd.h>

#include <atomic>

namespace muster::torch_backend {

/// The process's T. A forked child gets a T of its own: its parent's counts threads that are not in the child, and its
/// mutexes may be locked for ever, so that one is not even looked at. Never destroyed: threads may run until the end.
template <class T>
T& of_this_process() {
    struct Owned {
        pid_t owner = ::getpid();
        T object;
    };
    static std::atomic<Owned*> newest = nullptr;
    for (auto* found = newest.load();;) {
        if (found != nullptr && found->owner == ::getpid()) return found->object;
        auto* const fresh = new Owned;
        if (newest.compare_exchange_strong(found, fresh)) return fresh->object;
        delete fresh;
    }
}

}  // namespace muster::torch_backend
