// The engine's work on memory that the host cannot access: a GPU stream beside that of the collectives.
//
// Only finish() and settle() wait. Order between this queue and the collectives comes from mark() alone: an operation
// whose `after` is a mark starts after all work that was put here before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::kernels {
enum class KernelNumber : int;
}

namespace muster::runtime {

/// One launch of a kernel (worker_runtime/kernels), made by kernels::launch().
struct KernelCall {
    kernels::KernelNumber number;
    std::uint32_t blocks;
    const void* arguments;  ///< the kernel's struct; launch() copies it
};

/// A GPU stream that accepts our kernels.
class KernelQueue {
  public:
    virtual ~KernelQueue() = default;
    /// Runs after all earlier work; does not wait for it.
    virtual Result<void> launch(const KernelCall& call) = 0;
};

/// Arithmetic that belongs to a collective (Operation::steps), on its stream. One thread calls both functions when the
/// collective is launched. They enqueue work and never wait. The object must outlive the operation.
class CollectiveSteps {
  public:
    virtual ~CollectiveSteps() = default;
    /// Before the collective, and after Operation::after and earlier collectives.
    virtual Result<void> before(KernelQueue& stream) const = 0;
    /// After the collective; the operation is complete when this work is.
    virtual Result<void> behind(KernelQueue& stream) const = 0;
};

/// Thread-safe.
class DeviceQueue : public KernelQueue {
  public:
    /// Success if kernels can be launched here; unsupported gives the reason.
    virtual Result<void> has_kernels() = 0;

    /// Later work runs after `event` (a cudaEvent_t) in its current state; the caller may record it again at once.
    virtual Result<void> wait_for(void* event) = 0;
    /// Copies between host and device memory, in any direction. Host memory must stay valid until finish().
    virtual Result<void> copy(void* to, const void* from, std::size_t size_bytes) = 0;
    virtual Result<void> fill_zero(void* memory, std::size_t size_bytes) = 0;

    /// The event (a cudaEvent_t) with this number, from 0, recorded after all earlier work.
    virtual Result<void*> mark(std::size_t number) = 0;

    /// Returns when all earlier work is complete. timed_out after `limit`.
    virtual Result<void> finish(Duration limit) = 0;
    /// Returns when the whole device is idle, whoever started its work. For rare changes of memory that other work,
    /// unknown here, may still use.
    virtual Result<void> settle() = 0;
};

}  // namespace muster::runtime
