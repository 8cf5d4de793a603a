#include "rendezvous/base/thread_start.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster {

Result<std::thread> start_thread(const char* name, std::function<void()> work) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    int refused = 0;
    try {
        thread = std::thread(std::move(work));
    } catch (const std::system_error& failure) {
        refused = failure.code().value();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    // Said in full: a thread can be made of anything, an Error included.
    if (refused != 0) return {boost::system::in_place_error, error_from_shortage(refused, cat("start thread ", name))};
    ::pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace muster
