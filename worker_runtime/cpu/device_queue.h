// What the engine does with memory that the host cannot touch: a stream of a GPU, beside the one of the collectives.
//
// Nothing waits but finish() and settle(). Between this queue and the collectives there is no order but by mark(): an
// operation whose `after` is a mark starts behind all that was put here before.
#pragma once

#include <cstddef>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

/// Any thread.
class DeviceQueue {
  public:
    virtual ~DeviceQueue() = default;

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
