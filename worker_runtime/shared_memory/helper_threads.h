// Threads that help a rank with the elements of large operations in shared memory. On hosts with many cores, one
// thread is assumed to move less than the memory can; this was not measured on such a host.
//
// They take no decision: an operation's own thread cuts its work into pieces, takes pieces itself, and goes on when all
// are done. Which thread makes an element never changes its bits: a helper computes with the rounding, the flushing of
// denormal numbers and the other floating-point state of the thread that it helps. Failures are found between pieces
// of work, in the steps of the group, which the operation's own thread makes alone.
//
// A helper that gets no core takes no piece, but one that loses its core in a piece delays the operation. So helpers
// are for hosts with cores to spare. Measured on 2 cores beside other work, one rank's half of an all_reduce of 25 MiB,
// with 1 and with 2 threads: 1.09 and 0.63 ms at real-time priority; 1.3 and 9.4 ms without, at a load of 10.
//
// MUSTER_COLLECTIVE_THREADS is the number of threads of a rank, its own included. The launcher sets it where cores are
// to spare.
#pragma once

#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace muster::runtime {

class HelperThreads {
  public:
    /// Work that touches fewer bytes than this is over before a helper wakes up.
    static constexpr std::size_t touched_bytes_min = 2u << 20;

    /// Those of the process, for all its groups. They end with the last group that holds them. A forked child gets its
    /// own, because it has none of its parent's threads.
    static std::shared_ptr<HelperThreads> of_process();

    explicit HelperThreads(int threads) : threads_max_(threads) {}
    ~HelperThreads();
    HelperThreads& operator=(HelperThreads&&) = delete;

    /// Calls `work(begin, end)` for ranges that are all of [0, count) together, on several threads if there is enough.
    /// `element_bytes` are those of an array, `arrays` the number of arrays that the work touches. Ranges begin at
    /// cache lines. `work` must not throw. Several threads may call this at once: one of them is helped.
    void run(std::size_t count, std::size_t element_bytes, std::size_t arrays, const auto& work) {
        if (count * element_bytes * arrays < touched_bytes_min)
            work(0, count);
        else
            run_large(count, element_bytes, arrays, work);
    }

  private:
    struct Job {
        const std::function<void(std::size_t, std::size_t)>* work;
        std::size_t count;
        std::size_t piece;
        std::fenv_t state{};  ///< of the thread that is helped
        std::atomic<std::size_t> next = 0;

        /// Ends the process where `work` throws: other threads are at it, too.
        void take_pieces() noexcept;
    };
    void run_large(std::size_t count, std::size_t element_bytes, std::size_t arrays,
                   const std::function<void(std::size_t, std::size_t)>& work);
    void start();
    void help();

    const int threads_max_;
    std::mutex in_use_;  ///< Held by the thread that is helped.
    std::mutex mutex_;   ///< Of all below.
    std::condition_variable begun_;
    std::condition_variable done_;
    Job* job_ = nullptr;
    std::uint64_t jobs_ = 0;
    int busy_ = 0;  ///< Helpers that are at the job.
    bool ends_ = false;
    bool started_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace muster::runtime
