#include "worker_runtime/torch/lanes.h"

#include <dlfcn.h>
#include <unistd.h>

#include <utility>

#include "worker_runtime/torch/per_process.h"

namespace muster::torch_backend {

namespace {

thread_local bool is_ours = false;

/// How long a thread waits for the end of the interpreter to begin: an atexit function may join it.
constexpr std::chrono::seconds end_begins_max{1};

/// Asks Python, if it is in the process. The name is older than Python 3.13's.
bool interpreter_ends() {
    using Asked = int (*)();
    static const auto ask = [] {
        void* const found = ::dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
        return reinterpret_cast<Asked>(found != nullptr ? found : ::dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
    }();
    return ask != nullptr && ask() != 0;
}

}  // namespace

Threads& Threads::of_process() {
    return of_this_process<Threads>();
}

bool Threads::has_this_thread() {
    return is_ours;
}

bool Threads::run(std::function<void()> task) {
    std::unique_lock lock(mutex_);
    if (closed_) return false;
    tasks_.push_back(std::move(task));
    ++busy_;
    if (idle_ >= tasks_.size()) {
        changed_.notify_one();
        return true;
    }
    if (threads_ >= threads_max) {
        tasks_.pop_back();
        --busy_;
        return false;
    }
    try {
        std::thread([this] {
            is_ours = true;
            std::unique_lock own(mutex_);
            serve(own);
        }).detach();
        ++threads_;
    } catch (const std::exception&) {
        if (idle_ > 0) return true;  // a thread takes it later
        tasks_.pop_back();
        --busy_;
        return false;
    }
    return true;
}

void Threads::serve(std::unique_lock<std::mutex>& lock) {
    for (;;) {
        while (!tasks_.empty()) {
            {
                const auto task = std::move(tasks_.front());
                tasks_.pop_front();
                lock.unlock();
                task();
            }
            lock.lock();
            if (--busy_ == 0) quiet_.notify_all();
        }
        ++idle_;
        const bool more = changed_.wait_for(lock, idle_max, [this] { return !tasks_.empty(); });
        --idle_;
        if (!more) break;
    }
    --threads_;
}

void Threads::begin_end() {
    ender_ = std::this_thread::get_id();
    ending_ = true;
}

void Threads::stay_if_ending() const {
    if (!ending_ || is_ours || std::this_thread::get_id() == ender_) return;
    const auto limit = std::chrono::steady_clock::now() + end_begins_max;
    while (!interpreter_ends() && std::chrono::steady_clock::now() < limit) ::usleep(1000);
    while (interpreter_ends()) ::pause();
}

bool Threads::close(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    closed_ = true;
    return quiet_.wait_until(lock, deadline, [this] { return busy_ == 0; });
}

bool Lane::run_here(const std::function<void()>& work) {
    {
        const std::lock_guard lock(mutex_);
        if (busy_ || !queue_.empty()) return false;
        busy_ = true;
    }
    work();
    if (has_more() && !begin_thread()) serve();
    return true;
}

bool Lane::post(Job job) {
    // Locked also while a thread is sought: another job that is posted meanwhile relies on it.
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= queued_max) return false;
    queue_.push_back(std::move(job));
    busy_ = busy_ || begin_thread();
    if (!busy_) queue_.pop_back();
    return busy_;
}

bool Lane::begin_thread() {
    return Threads::of_process().run([self = shared_from_this()] { self->serve(); });
}

bool Lane::is_idle() const {
    const std::lock_guard lock(mutex_);
    return !busy_ && queue_.empty();
}

bool Lane::take(Job& job) {
    const std::lock_guard lock(mutex_);
    busy_ = !queue_.empty();
    if (!busy_) return false;
    job = std::move(queue_.front());
    queue_.pop_front();
    return true;
}

bool Lane::has_more() {
    const std::lock_guard lock(mutex_);
    busy_ = !queue_.empty();
    return busy_;
}

void Lane::serve() {
    for (Job job; take(job);) {
        job.work();
        if (!job.is_needed()) continue;
        if (!has_more()) {
            job.then();
            return;
        }
        // What follows may wait for a job of this queue, so it needs another thread.
        if (!Threads::of_process().run(job.then)) job.then();
    }
}

}  // namespace muster::torch_backend
