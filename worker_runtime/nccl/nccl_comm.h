// One non-blocking NCCL communicator with its own stream. Each call is polled until it is complete
// (ncclCommGetAsyncError), and each operation until its event has occurred (cudaEventQuery), with our own deadline.
//
// One call at a time. When the process's communicators are aborted, a call in progress returns the first failure.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/nccl_process.h"
#include "worker_runtime/nccl/nccl_queue.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// A wait. `check_alive` is called repeatedly: an error ends the wait. At the deadline `late` returns the error. If
/// NCCL fails, `cause_of` returns the error behind what NCCL reports.
struct NcclWait {
    RunTerms terms;
    std::function<Result<void>()> check_alive;
    std::function<Error()> late;
    std::function<Error(const Error& reported)> cause_of = [](const Error& reported) { return reported; };
};

class NcclComm : public std::enable_shared_from_this<NcclComm> {
  public:
    using Init = std::function<ncclResult_t(ncclComm_t*, ncclConfig_t*)>;
    using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

    /// Calls `init` with a non-blocking configuration, and waits until all ranks are connected. A failure aborts all
    /// communicators of the process.
    static Result<std::shared_ptr<NcclComm>> make(const std::shared_ptr<NcclProcess>& process, std::string_view what,
                                                  const Init& init, const NcclWait& wait);
    /// ncclCommSplit: a collective over the parent. Returns null if `color` is NCCL_SPLIT_NOCOLOR.
    static Result<std::shared_ptr<NcclComm>> split(NcclComm& parent, int color, int key, const NcclWait& wait);

    /// The stream of the operations. close() or the process's abort must have run before it ends.
    [[nodiscard]] NcclQueue& stream() { return *stream_; }
    /// Makes a call that NCCL completes asynchronously (split, register), and waits for it.
    Result<void> call(std::string_view what, const Call& function, const NcclWait& wait);
    /// Makes a call that works on the stream, and waits until that work is complete.
    Result<void> run(std::string_view what, const Call& function, const NcclWait& wait);
    /// True if the stream has passed the mark. Also asks NCCL for errors, at the end and each millisecond (`asked`).
    Result<bool> passed(std::string_view what, std::size_t number, Instant& asked);
    /// Waits for everything that is on the stream so far.
    Result<void> finish(std::string_view what, const NcclWait& wait);

    /// Registers memory until forget(). A collective: every rank registers its memory with the same call.
    Result<void> enlist(void* memory, std::size_t size_bytes, const NcclWait& wait);
    void forget(void* memory);

    /// Closes it in order, together with all ranks. False if the ranks did not join within the process's close_limit;
    /// then all communicators of the process are aborted.
    bool close();

    // The steps of the abort:
    /// Returns when no thread is inside a call; later calls fail before they reach NCCL.
    void settle();
    void deregister_all();
    void abort();
    /// Takes the communicator that a split has created, after the parent's split or its abort has returned.
    void adopt();

  private:
    NcclComm(std::shared_ptr<NcclProcess> process, std::unique_ptr<NcclQueue> stream)
        : process_(std::move(process)), stream_(std::move(stream)) {}
    Result<void> enter(std::string_view what, const std::function<ncclResult_t()>& function);
    Result<void> poll(std::string_view what, const NcclWait& wait);
    Result<void> ask(std::string_view what, bool& over);
    Result<void> until(const std::function<Result<bool>()>& over, const NcclWait& wait);

    std::shared_ptr<NcclProcess> process_;
    std::mutex calls_;  ///< held during each call on handle_
    ncclComm_t handle_ = nullptr;
    ncclComm_t arriving_ = nullptr;            ///< written by NCCL while the parent is being split
    const std::unique_ptr<NcclQueue> stream_;  ///< Its mark 0 belongs to finish().
    std::map<void*, void*> registrations_;     ///< memory -> NCCL's handle; under calls_
};

}  // namespace muster::runtime
