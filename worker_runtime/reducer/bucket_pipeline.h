// Runs the collectives of the buckets of one step.
//
// Most exchanges need one collective per bucket. If one needs more, the second must not start whenever the first is
// complete, because that time differs between ranks, and all ranks must run the same collectives in the same order. So
// the order is fixed: collective k of a bucket is started right after the launch of the bucket that comes k x `lag`
// launches later (after waiting for collective k - 1 if needed). The rest at the end follows in the same pattern. The
// work of an exchange after a bucket's last collective is local and done at the end. The collectives of a chained
// exchange (on GPUs) follow each other without the host and are all started at once.
#pragma once

#include <cstddef>
#include <vector>

#include "muster/bucket_exchange.h"
#include "muster/communicator.h"
#include "worker_runtime/core/step_meter.h"

namespace muster::runtime {

enum class Launch {
    start,   ///< on a thread of the communicator
    inline_  ///< in this thread, to its end: for the last bucket, when there is no other work
};

class BucketPipeline {
  public:
    static constexpr std::size_t lag = 2;

    /// All arguments must outlive the pipeline.
    BucketPipeline(Communicator& communicator, StepMeter& meter) : communicator_(communicator), meter_(meter) {}
    /// Waits for operations in progress, because their memory must outlive them.
    ~BucketPipeline();
    BucketPipeline& operator=(BucketPipeline&&) = delete;

    /// True in a call from the exchange, which must not call its reducer.
    [[nodiscard]] bool is_inside() const { return inside_ == this; }

    /// Call it before the first launch.
    void use(BucketExchange& exchange) { exchange_ = &exchange; }

    /// The samples of all ranks, in rank order, written before the operations that follow begin() run
    /// (Operation::weights).
    void set_weights(const float* weights) { weights_ = weights; }

    /// `plan_hash` is part of the tags, so that ranks with different plans are detected.
    void begin(std::uint64_t plan_hash);

    /// One thread at a time. `bucket` must stay valid until drain() has returned.
    Result<void> launch(const GradientBucket& bucket, Launch how);

    /// Returns when every launched bucket holds its result.
    Result<void> drain();

    /// Runs a collective beside those of the buckets, to its end; its time counts as exposed.
    Result<void> run(Operation operation);
    /// Starts a collective whose result is not awaited. Its time is not counted.
    void start(Operation operation);

  private:
    struct Flight {
        const GradientBucket* bucket;
        int stage = 0;  ///< the next stage
        int collective_count = 1;
        Work work{};
        std::vector<Work> earlier{};  ///< earlier work of the same bucket, if the exchange is chained
    };

    /// Marks this thread while it calls the exchange.
    class InExchange {
      public:
        explicit InExchange(const BucketPipeline& pipeline) { inside_ = &pipeline; }
        ~InExchange() { inside_ = nullptr; }
        InExchange& operator=(InExchange&&) = delete;
    };

    Result<void> start_due(std::size_t launch_number);
    Result<void> advance(Flight& flight, Launch how);
    Result<void> await(Flight& flight);
    Result<void> await(Work& work, const GradientBucket& bucket);
    Result<void> complete(const Operation& operation);
    Error give_up(Error error);
    static Error in_bucket(Error error, const GradientBucket& bucket);

    static inline thread_local const BucketPipeline* inside_ = nullptr;

    Communicator& communicator_;
    BucketExchange* exchange_ = nullptr;
    StepMeter& meter_;
    const float* weights_ = nullptr;
    std::uint32_t tag_ = 0;
    std::vector<Flight> flights_;
    Work beside_;
};

/// The bytes that this rank passes to a collective.
std::size_t input_bytes(const Operation& operation, int world);

}  // namespace muster::runtime
