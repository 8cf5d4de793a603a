#include "worker_runtime/tcp/mesh/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace muster::runtime {

/// All guards of the process. The mutex is held across fork(), so that the child finds the list whole.
struct ForkGuards {
    std::mutex mutex;
    std::vector<const ForkGuard*> list;

    static ForkGuards& all() {
        // Never destroyed: a fork may come after the end of main.
        static ForkGuards* const guards = [] {
            ::pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); }, [] { all().in_child(); });
            return new ForkGuards;
        }();
        return *guards;
    }

    /// Between fork() and whatever follows, only what is safe in a signal handler may be called.
    void in_child() {
        const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        for (const auto* guard : list) {
            for (const int descriptor : guard->descriptors_) {
                if (null < 0 || ::dup3(null, descriptor, O_CLOEXEC) < 0) ::close(descriptor);
            }
        }
        if (null >= 0) ::close(null);
        mutex.unlock();
    }
};

ForkGuard::ForkGuard(std::vector<int> descriptors) : descriptors_(std::move(descriptors)) {
    auto& guards = ForkGuards::all();
    const std::lock_guard lock(guards.mutex);
    guards.list.push_back(this);
}

ForkGuard::~ForkGuard() {
    auto& guards = ForkGuards::all();
    const std::lock_guard lock(guards.mutex);
    std::erase(guards.list, this);
}

}  // namespace muster::runtime
