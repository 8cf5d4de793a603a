// The memory and arithmetic of a sharded optimizer's state: on the host or on a GPU.
#pragma once

#include <memory>
#include <span>

#include "muster/communicator.h"
#include "muster/operation.h"
#include "muster/sharded_optimizer.h"

namespace muster::runtime {

/// Calls take effect in order, maybe later; finish() waits for all of them.
class ShardMath {
  public:
    virtual ~ShardMath() = default;

    /// Allocates zeroed memory for `count` floats, equal on all ranks; a collective. Call it once, before all others.
    virtual Result<void> take(Communicator& communicator, std::size_t count) = 0;
    /// Returns the next `count` floats of that memory.
    virtual std::span<float> next(std::size_t count) = 0;

    /// Sets `values` from a piece of a parameter. `room`, in a bucket, has as many elements of the same type; it is
    /// used as scratch memory and is zero afterwards.
    virtual Result<void> load(const ConstBuffer& parameter, const Buffer& room, std::span<float> values) = 0;
    virtual Result<void> update(const OptimizerRule& rule, std::uint64_t number, const Buffer& gradient,
                                const OptimizerPiece& piece) = 0;
    /// Writes `values` to `to`, in a bucket, in its type.
    virtual Result<void> store(std::span<float> values, const Buffer& to) = 0;
    /// Returns an event for Operation::after of the next collective; null if it need not wait.
    virtual Result<void*> mark(std::size_t number) = 0;
    /// Copies from a bucket to a parameter, which may be in host or GPU memory.
    virtual Result<void> hand_out(const ConstBuffer& from, void* to) = 0;
    virtual Result<void> finish() = 0;
};

std::unique_ptr<ShardMath> make_host_shards();
std::unique_ptr<ShardMath> make_device_shards(DeviceQueue& queue, Duration timeout);

}  // namespace muster::runtime
