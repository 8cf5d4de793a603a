// An exchange turns a bucket's gradients into the average over all ranks: unchanged, compressed, or by your own code (a
// hook).
//
// An exchange does not communicate. It returns the next collective and does the arithmetic around it. The reducer runs
// the collectives and hides them behind the backward pass where possible. For each bucket of a step:
//
//     advance(bucket, 0)       all of its gradients are ready; returns the first collective
//     advance(bucket, k)       the k-th collective is over; returns the next one, or nothing if the bucket is done: it
//                              then has the average, or the value that the trainer expects there
//
// Example, plain averaging: `return stage == 0 ? std::optional(all_reduce_weighted(...)) : std::nullopt`.
//
// An error of advance() or prepare(), or an invalid collective, ends the communicator, so that all ranks see the
// failure. If the communicator serves more than training, give a reducer with a hook its own (split()). An exchange
// must not call its reducer.
//
// One thread at a time calls advance(): the one in begin_step(), mark_ready() or finish(). The reducer calls it for the
// buckets in the same order on all ranks. The collectives are then the same too, if advance() returns equal ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muster/communicator.h"
#include "muster/operation.h"
#include "muster/parameter.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

/// The place of a parameter's gradient in its bucket.
struct BucketSlice {
    std::int32_t parameter = 0;  ///< index by order of registration
    std::size_t offset = 0;      ///< elements
    std::size_t count = 0;       ///< elements
};

struct GradientBucket {
    std::size_t index = 0;  ///< position in the order of launches, the same on all ranks
    Buffer gradients;       ///< the bucket's memory; the padding between slices is zero
    std::span<const BucketSlice> slices;
    /// This rank's weight in the average. 0 if the rank has no samples in this step: an exchange should then keep its
    /// residuals unchanged. Undefined in prepare(), as is `step`.
    float samples = 1;
    std::uint64_t step = 0;  ///< number of steps before this one
    /// On a GPU: a cudaEvent_t recorded after the work that makes the bucket's gradients. The first collective waits
    /// for it there, unless it names its own event. Run the exchange's arithmetic on a stream that waits for it. Work
    /// started after the last collective must be complete when advance() returns.
    void* ready = nullptr;
};

/// The group and its resources, for an exchange.
struct ExchangeTerms {
    int rank = 0;
    int world = 1;
    std::span<const Parameter> parameters;
    /// Returns zeroed memory next to the buckets (host or GPU) that collectives reduce in place, as
    /// Communicator::allocate does. Make the same calls on all ranks.
    std::function<Result<Memory>(std::size_t size_bytes)> allocate;
    runtime::DeviceQueue* device = nullptr;  ///< the queue for GPU work if the buckets are on a GPU; else null
    Duration timeout{};                      ///< deadline for waits on that queue
    /// On a GPU: the samples of all ranks in rank order, valid after the step's first collective was launched.
    const float* weights = nullptr;
};

class BucketExchange {
  public:
    virtual ~BucketExchange() = default;

    /// The name with all settings, such as "int8"; it must be equal on all ranks.
    [[nodiscard]] virtual std::string name() const = 0;

    /// Called on all ranks together at the start, and whenever the buckets were made again. Allocate memory here. Keep
    /// state such as error feedback by parameter, because buckets change.
    virtual Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) = 0;

    /// The number of collectives of this bucket, 0 included; the same on all ranks.
    [[nodiscard]] virtual int collective_count(const GradientBucket& bucket) const = 0;

    virtual Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) = 0;

    /// On a GPU: true if all collectives of a bucket are started when its gradients are ready, and the work between
    /// them runs on their stream (Operation::steps). advance(bucket, k) is then called when collective k - 1 was
    /// started.
    [[nodiscard]] virtual bool chained() const { return false; }

    /// Between steps: appends this rank's state (such as residuals) to `to`, for a checkpoint.
    virtual void keep(std::vector<std::byte>& /*to*/) const {}
    /// After prepare() for equal buckets in a world of equal size: takes the bytes that keep() appended. Returns false
    /// if their size is wrong.
    virtual bool restore(std::span<const std::byte> from) { return from.empty(); }
};

}  // namespace muster
