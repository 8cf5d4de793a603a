// The threads of the back end: operations of one queue run one after another, queues run beside each other.
//
// A process has many groups (every dimension of a device mesh is one) and few of them work at once. So threads belong
// to the process, not to a group: a queue borrows one while it has work. Every busy queue needs a thread of its own,
// because an operation waits for other ranks, and they may wait for another queue of this process first.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace muster::torch_backend {

/// A program that starts more without waiting for any has lost track of them.
inline constexpr std::size_t queued_max = 65536;
/// An idle thread ends after this time.
inline constexpr std::chrono::seconds idle_max{10};
/// Of a process: each is a queue whose operation waits for other ranks. More than that are lost works, too.
inline constexpr std::size_t threads_max = 1024;

/// The threads of the process.
class Threads {
  public:
    static Threads& of_process();

    /// Runs `task` in an idle thread, or in a new one. Tasks throw nothing. False if close() was called, or if there
    /// are threads_max threads, and none is idle for it.
    bool run(std::function<void()> task);

    /// Refuses later tasks, and waits until the present ones are over. False if they are not by the deadline.
    bool close(std::chrono::steady_clock::time_point deadline);

    /// The calling thread ends the interpreter now.
    void begin_end();
    /// After begin_end() any other thread that comes here, but for those of this class, waits up to a second for the
    /// interpreter's end to begin, and stays for ever if it has begun.
    void stay_if_ending() const;

    /// Is the calling thread one of these?
    static bool has_this_thread();

  private:
    void serve(std::unique_lock<std::mutex>& lock);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::condition_variable quiet_;
    std::deque<std::function<void()>> tasks_;
    std::size_t idle_ = 0;
    std::size_t busy_ = 0;
    std::size_t threads_ = 0;
    bool closed_ = false;
    std::atomic<bool> ending_ = false;
    std::thread::id ender_{};
};

/// In a call that returns to Python: a thread that would come back into an interpreter that ends stays here instead.
/// Python would end that thread, by an exception that C++ does not let pass: the process would end with abort().
struct ReturnToPython {
    ~ReturnToPython() { Threads::of_process().stay_if_ending(); }
    ReturnToPython& operator=(ReturnToPython&&) = delete;
};

/// A queue of operations. Hold it by a shared_ptr.
class Lane : public std::enable_shared_from_this<Lane> {
  public:
    struct Job {
        std::function<void()> work;
        /// What follows when the next job may begin already: it may wait for that one. Returns at once if there is
        /// nothing to do; `is_needed` tells.
        std::function<bool()> is_needed;
        std::function<void()> then;
    };

    /// Runs `work` in the calling thread if nothing is before it. False: nothing was done.
    bool run_here(const std::function<void()>& work);
    /// False if there are too many jobs, or the process ends.
    bool post(Job job);

    [[nodiscard]] bool is_idle() const;

  private:
    void serve();
    bool begin_thread();
    /// False if there is none.
    bool take(Job& job);
    bool has_more();

    mutable std::mutex mutex_;
    std::deque<Job> queue_;
    bool busy_ = false;
};

}  // namespace muster::torch_backend
