#include "worker_runtime/shared_memory/helper_threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"

namespace muster::runtime {

namespace {

constexpr int threads_max = 64;
/// What one piece touches: it fits into a core's own cache, and taking it costs nothing beside it.
constexpr std::size_t piece_bytes = 512u << 10;

/// MUSTER_COLLECTIVE_THREADS.
int chosen_threads() {
    const char* const wish = std::getenv("MUSTER_COLLECTIVE_THREADS");
    int threads = 1;
    if (wish == nullptr || *wish == '\0') return threads;
    if (parse_number(std::string_view(wish), threads) && threads >= 1 && threads <= threads_max) return threads;
    static std::atomic<bool> told = false;
    if (!told.exchange(true))
        log(LogLevel::warning, "MUSTER_COLLECTIVE_THREADS=", wish, " is no number from 1 to ", threads_max,
            "; using 1");
    return 1;
}

/// Helpers run where the thread that starts them may run. More threads than CPUs there would wait for each other. A
/// host with more CPUs than the set can hold has enough.
int threads_with_a_cpu(int threads) {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::min(threads, CPU_COUNT(&set)) : threads;
}

struct Current {
    std::mutex mutex;
    std::weak_ptr<HelperThreads> helpers;
};

}  // namespace

std::shared_ptr<HelperThreads> HelperThreads::of_process() {
    static Current* current = [] {
        ::pthread_atfork(nullptr, nullptr, [] { current = new Current; });
        return new Current;
    }();
    const std::lock_guard lock(current->mutex);
    auto helpers = current->helpers.lock();
    if (!helpers) current->helpers = helpers = std::make_shared<HelperThreads>(chosen_threads());
    return helpers;
}

HelperThreads::~HelperThreads() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    begun_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void HelperThreads::run_large(std::size_t count, std::size_t element_bytes, std::size_t arrays,
                              const std::function<void(std::size_t, std::size_t)>& work) {
    std::unique_lock helped(in_use_, std::defer_lock);
    if (threads_max_ == 1 || !helped.try_lock()) return work(0, count);
    if (!started_) start();
    const std::size_t line = 64 / element_bytes;
    Job job{.work = &work,
            .count = count,
            .piece = std::max<std::size_t>(piece_bytes / arrays / element_bytes / line, 1) * line};
    std::fegetenv(&job.state);
    {
        const std::lock_guard lock(mutex_);
        job_ = &job;
        ++jobs_;
    }
    begun_.notify_all();
    job.take_pieces();
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // who wakes up now is too late
    done_.wait(lock, [&] { return busy_ == 0; });
}

void HelperThreads::Job::take_pieces() noexcept {
    for (;;) {
        const std::size_t begin = next.fetch_add(piece, std::memory_order_relaxed);
        if (begin >= count) return;
        (*work)(begin, std::min(begin + piece, count));
    }
}

/// Not before there is work: most groups never have any.
void HelperThreads::start() {
    started_ = true;
    for (int i = threads_with_a_cpu(threads_max_) - 1; i > 0; --i) {
        auto thread = start_thread("muster-helper", [this] { help(); });
        if (!thread) {
            log(LogLevel::warning, thread.error().context, "; collectives use ", threads_.size() + 1, " threads");
            return;
        }
        threads_.push_back(std::move(*thread));
    }
}

void HelperThreads::help() {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
        begun_.wait(lock, [&] { return ends_ || (job_ != nullptr && jobs_ != seen); });
        if (ends_) return;
        Job& job = *job_;
        seen = jobs_;
        ++busy_;
        lock.unlock();
        std::fesetenv(&job.state);  // of another thread at each job
        job.take_pieces();
        lock.lock();
        if (--busy_ == 0) done_.notify_one();
    }
}

}  // namespace muster::runtime
