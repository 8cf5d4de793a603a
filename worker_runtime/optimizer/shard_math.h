// Where a sharded optimizer keeps its state and computes: in the host's memory, or in the GPU's.
#pragma once

#include <memory>
#include <span>

#include "muster/communicator.h"
#include "muster/operation.h"
#include "muster/sharded_optimizer.h"

namespace muster::runtime {

/// Calls follow each other; finish() waits for all of them.
class ShardMath {
  public:
    virtual ~ShardMath() = default;

    /// Zeroed memory for `count` floats, the same on all ranks; a collective. Once, before everything else.
    virtual Result<void> take(Communicator& communicator, std::size_t count) = 0;
    /// The next of it.
    virtual std::span<float> next(std::size_t count) = 0;

    /// `values` of a piece of a parameter; `room` has as many elements of its type, in a bucket, and is zero
    /// afterwards.
    virtual Result<void> load(const ConstBuffer& parameter, const Buffer& room, std::span<float> values) = 0;
    virtual Result<void> update(const OptimizerRule& rule, std::uint64_t number, const Buffer& gradient,
                                const OptimizerPiece& piece) = 0;
    /// Into a bucket, in its type.
    virtual Result<void> store(std::span<float> values, const Buffer& to) = 0;
    /// A collective that is started next waits for this (Operation::after); null where nothing has to.
    virtual Result<void*> mark(std::size_t number) = 0;
    /// From a bucket to a parameter, which may lie in either memory.
    virtual Result<void> hand_out(const ConstBuffer& from, void* to) = 0;
    virtual Result<void> finish() = 0;
};

std::unique_ptr<ShardMath> make_host_shards();
std::unique_ptr<ShardMath> make_device_shards(DeviceQueue& queue, Duration timeout);

}  // namespace muster::runtime
