// How a bucket's gradients become the average over all ranks: as they are, compressed, or in a way of your own (a
// hook).
//
// An exchange does not communicate. It says which collective comes next and does the arithmetic around it; the reducer
// runs the collectives, hidden behind the backward pass where it can. For each bucket of a step:
//
//     advance(bucket, 0)       all of its gradients are ready. Give the first collective
//     advance(bucket, k)       the k-th collective is over. Give the next one, or nothing: the bucket then holds the
//                              average, or whatever the trainer expects to find there
//
// An example, plain averaging, is `return stage == 0 ? std::optional(all_reduce_weighted(...)) : std::nullopt`.
//
// An error of advance() or prepare(), or a collective that cannot be, ends the communicator, so that all ranks learn of
// it: give a reducer with a hook a communicator of its own (split()) where more than training hangs on it. An exchange
// must not call its reducer.
//
// advance() is called by one thread at a time: that of begin_step(), mark_ready() or finish(). The reducer calls it in
// an order of buckets that is the same on all ranks, so the collectives are too, as long as advance() gives equal ones.
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

/// Where a parameter's gradient lies in its bucket.
struct BucketSlice {
    std::int32_t parameter = 0;  ///< by order of registration
    std::size_t offset = 0;      ///< elements
    std::size_t count = 0;       ///< elements
};

struct GradientBucket {
    std::size_t index = 0;  ///< in the order of launches, the same on all ranks
    Buffer gradients;       ///< the bucket's memory; between slices lies padding, which is zero
    std::span<const BucketSlice> slices;
    /// This rank's weight in the average; 0 when it only keeps the others company: what an exchange holds back should
    /// stay with it then. Means nothing in prepare(), nor does `step`.
    float samples = 1;
    std::uint64_t step = 0;  ///< steps before this one
    /// Where the bucket lies on a GPU: a cudaEvent_t behind the work that makes its gradients. The first collective
    /// waits for it there, unless it names an event of its own. Arithmetic of an exchange belongs on a stream that
    /// waits for it; what it starts after the last collective must be over when advance() returns.
    void* ready = nullptr;
};

/// What an exchange may know of the group.
struct ExchangeTerms {
    int rank = 0;
    int world = 1;
    std::span<const Parameter> parameters;
    /// Zeroed memory, where the buckets lie, that collectives reduce in place (Communicator::allocate): call it equally
    /// on all ranks.
    std::function<Result<Memory>(std::size_t size_bytes)> allocate;
    runtime::DeviceQueue* device = nullptr;  ///< where the buckets lie on a GPU: what works there; else null
    Duration timeout{};                      ///< for what has to be waited for there
    /// Where they lie on a GPU: the samples of all ranks, in rank order, once the step's first collective is launched.
    const float* weights = nullptr;
};

class BucketExchange {
  public:
    virtual ~BucketExchange() = default;

    /// Its name with all settings, which must be equal on all ranks: "int8".
    [[nodiscard]] virtual std::string name() const = 0;

    /// New buckets, at the beginning and whenever they were made anew: take memory here. All ranks call it together.
    /// What is remembered of the gradients (error feedback) should be kept by parameter, since buckets change.
    virtual Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) = 0;

    /// How many collectives this bucket takes, 0 too; the same on all ranks.
    [[nodiscard]] virtual int collective_count(const GradientBucket& bucket) const = 0;

    virtual Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) = 0;

    /// On a GPU: a bucket's collectives are all started when its gradients are ready, and what is between them is put
    /// onto their stream (Operation::steps). advance(bucket, k) then comes when collective k - 1 has been started.
    [[nodiscard]] virtual bool chained() const { return false; }

    /// Between steps: adds to `to` what this rank remembers of the gradients, for a checkpoint.
    virtual void keep(std::vector<std::byte>& /*to*/) const {}
    /// After prepare() for equal buckets in an equal world: takes all that keep() added. False: it is of another size.
    virtual bool restore(std::span<const std::byte> from) { return from.empty(); }
};

}  // namespace muster
