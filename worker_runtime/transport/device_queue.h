// What the engine does with memory that the host cannot touch: a stream of a GPU, beside the one of the collectives.
//
// Nothing waits but finish() and settle(). Between this queue and the collectives there is no order but by mark(): an
// operation whose `after` is a mark starts behind all that was put here before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::kernels {
enum class KernelNumber : int;
}

namespace muster::runtime {

/// One launch of a kernel (worker_runtime/kernels): kernels::launch() makes it.
struct KernelCall {
    kernels::KernelNumber number;
    std::uint32_t blocks;
    const void* arguments;  ///< the kernel's struct; copied by launch()
};

/// A stream of a GPU that takes kernels of ours.
class KernelQueue {
  public:
    virtual ~KernelQueue() = default;
    /// Behind everything put before, without waiting for it.
    virtual Result<void> launch(const KernelCall& call) = 0;
};

/// Arithmetic that belongs to a collective (Operation::steps), on its stream: both are called when it is launched, by
/// one thread. They put work onto the stream, and wait for nothing. Must outlive the operation.
class CollectiveSteps {
  public:
    virtual ~CollectiveSteps() = default;
    /// In front of the collective; behind Operation::after, and the collectives before.
    virtual Result<void> before(KernelQueue& stream) const = 0;
    /// Behind it: the operation is over when this is.
    virtual Result<void> behind(KernelQueue& stream) const = 0;
};

/// Any thread.
class DeviceQueue : public KernelQueue {
  public:
    /// May kernels be launched here? unsupported says why not.
    virtual Result<void> has_kernels() = 0;

    /// What is put later comes behind `event` (a cudaEvent_t) as it stands now: it may be recorded again at once.
    virtual Result<void> wait_for(void* event) = 0;
    /// Between memory of the host and of the device, in any direction. Host memory must stay until finish().
    virtual Result<void> copy(void* to, const void* from, std::size_t size_bytes) = 0;
    virtual Result<void> fill_zero(void* memory, std::size_t size_bytes) = 0;

    /// The event (a cudaEvent_t) of that number, from 0, behind everything put so far.
    virtual Result<void*> mark(std::size_t number) = 0;

    /// Returns when all that was put so far is done. timed_out after `limit`.
    virtual Result<void> finish(Duration limit) = 0;
    /// Returns when the whole device has nothing to do, whoever gave it work: for what happens rarely, and must not
    /// change memory under work that the caller has not told about.
    virtual Result<void> settle() = 0;
};

}  // namespace muster::runtime
