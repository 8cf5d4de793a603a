// One non-blocking NCCL communicator with its own stream. Each call is polled until it is complete
// (ncclCommGetAsyncError), and each operation until its event has occurred (cudaEventQuery), with our own deadline.
//
// One call at a time. When the process's communicators are aborted, a call in progress returns the first failure.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/nccl_process.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// One wait. `look` is asked now and then: an error ends the wait. At the deadline `late` says what has not come.
struct NcclWait {
    RunTerms terms;
    std::function<Result<void>()> check_alive;
    std::function<Error()> late;
};

class NcclComm : public KernelQueue, public std::enable_shared_from_this<NcclComm> {
  public:
    using Init = std::function<ncclResult_t(ncclComm_t*, ncclConfig_t*)>;
    using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

    /// Calls `init` with a non-blocking configuration and waits until all ranks are connected. After a failure the
    /// process's communicators are being aborted.
    static Result<std::shared_ptr<NcclComm>> make(const std::shared_ptr<NcclProcess>& process, std::string_view what,
                                                  const Init& init, const NcclWait& wait);
    /// ncclCommSplit: a collective over the parent. Null where `color` is NCCL_SPLIT_NOCOLOR.
    static Result<std::shared_ptr<NcclComm>> split(NcclComm& parent, int color, int key, const NcclWait& wait);
    /// close() or the process's abort came before.
    ~NcclComm() override;
    NcclComm(const NcclComm&) = delete;
    NcclComm& operator=(const NcclComm&) = delete;

    /// A call that is over when NCCL says so: split, register.
    Result<void> call(std::string_view what, const Call& function, const NcclWait& wait);
    /// A call that works on the stream, to its end there.
    Result<void> run(std::string_view what, const Call& function, const NcclWait& wait);
    /// Mark `number`, from 0, is behind everything on the stream so far.
    Result<void> mark(std::string_view what, std::size_t number);
    /// Has the stream come to that mark? NCCL is asked too whether all is well, at the end and now and then (`asked`).
    Result<bool> passed(std::string_view what, std::size_t number, Instant& asked);
    /// The stream goes on after `event` (a cudaEvent_t).
    Result<void> wait_for(void* event);
    /// Between host and device, in order with the stream's operations.
    Result<void> copy(void* to, const void* from, std::size_t size_bytes);
    Result<void> fill_zero(void* memory, std::size_t size_bytes);
    Result<void> launch(const KernelCall& call) override;
    /// Everything on the stream so far.
    Result<void> finish(std::string_view what, const NcclWait& wait);

    /// Registers memory that every rank registers with the same call; until forget().
    Result<void> enlist(void* memory, std::size_t size_bytes, const NcclWait& wait);
    void forget(void* memory);

    /// Closes it in order with all ranks: false when they did not come within the process's close_limit, which is then
    /// a failure like any other.
    bool close();

    // Steps of the abort.
    /// Returns when no thread is inside a call, and none will be.
    void settle();
    void deregister_all();
    void abort();
    /// Once the parent's split is over, or its abort has returned: what was split off is this one's.
    void adopt();

  private:
    explicit NcclComm(std::shared_ptr<NcclProcess> process) : process_(std::move(process)) {}
    Result<void> prepare();
    Result<void> enter(std::string_view what, const std::function<ncclResult_t()>& function);
    Result<void> poll(std::string_view what, const NcclWait& wait);
    Result<void> ask(std::string_view what, bool& over);
    Result<void> until(const std::function<Result<bool>()>& over, const NcclWait& wait);

    std::shared_ptr<NcclProcess> process_;
    std::mutex calls_;  ///< held during each call on handle_
    ncclComm_t handle_ = nullptr;
    ncclComm_t arriving_ = nullptr;  ///< NCCL's to write while the parent is being split
    cudaStream_t stream_ = nullptr;
    std::vector<cudaEvent_t> marks_;  ///< Used by the thread that runs operations only. Number 0 belongs to finish().
    std::map<void*, void*> registrations_;  ///< memory -> NCCL's handle; under calls_
};

}  // namespace muster::runtime
