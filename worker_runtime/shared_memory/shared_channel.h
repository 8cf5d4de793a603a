// send and receive over shared memory: for each ordered pair of ranks a ring of slots that the sender fills and the
// receiver empties, each waiting for the other's step word.
#pragma once

#include <cstdint>

#include "rendezvous/base/error.h"
#include "worker_runtime/shared_memory/shared_group.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// This rank's end of one channel. One message at a time.
class SharedChannel {
  public:
    SharedChannel(SharedGroup& group, int from, int to) : group_(group), from_(from), to_(to) {}

    /// Returns when the receiver no longer needs `operation.input`.
    Result<void> send(const Operation& operation, const RunTerms& terms);
    /// invalid_argument, at both ends: the incoming message has another type or count.
    Result<void> receive(const Operation& operation, const RunTerms& terms);
    [[nodiscard]] Incoming incoming() const {
        const StepWord& filled = group_.channel(from_, to_).filled;
        const bool left = has_left(filled);  // read first: what it sent before is a message
        return steps_of(filled) > slots_ ? Incoming::message : left ? Incoming::left : Incoming::nothing;
    }

  private:
    [[nodiscard]] std::size_t payload_bytes_max() const { return channel_slot_bytes(group_.size()) - sizeof(SlotHead); }

    SharedGroup& group_;
    const int from_;
    const int to_;
    std::uint64_t slots_ = 0;  ///< slots filled or emptied so far
};

}  // namespace muster::runtime
