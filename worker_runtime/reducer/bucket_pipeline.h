// Runs the collectives of the buckets of one step.
//
// Most exchanges take one collective a bucket. Where one takes more, the second must not start whenever the first
// happens to be over, because that differs between ranks, and all ranks must run the same collectives in the same
// order. So the order is fixed: the collective k of a bucket is started right after the launch of the bucket that comes
// k x `lag` launches later (waiting for collective k - 1 if need be), and what is left at the end follows in the same
// pattern. What an exchange does after a bucket's last collective is local, and done at the end. The collectives of a
// chained exchange (on GPUs) follow each other without the host, and are all started at once.
#pragma once

#include <cstddef>
#include <vector>

#include "muster/bucket_exchange.h"
#include "muster/communicator.h"
#include "worker_runtime/core/step_meter.h"

namespace muster::runtime {

enum class Launch {
    start,   ///< a thread of the communicator runs it
    inline_  ///< in this thread, to its end: for the last bucket, when nothing is left to do meanwhile
};

class BucketPipeline {
  public:
    static constexpr std::size_t lag = 2;

    /// All must outlive the pipeline.
    BucketPipeline(Communicator& communicator, StepMeter& meter) : communicator_(communicator), meter_(meter) {}
    /// Waits for what is in progress: the memory must not go before.
    ~BucketPipeline();
    BucketPipeline(const BucketPipeline&) = delete;
    BucketPipeline& operator=(const BucketPipeline&) = delete;

    /// Does this thread come out of the exchange, which must leave its reducer alone?
    [[nodiscard]] bool is_inside() const { return inside_ == this; }

    /// Before the first launch.
    void use(BucketExchange& exchange) { exchange_ = &exchange; }

    /// Where the samples of all ranks will be, in rank order, once the operations that begin() precedes run
    /// (Operation::weights).
    void know_weights(const float* weights) { weights_ = weights; }

    /// `plan_hash` goes into the tags, so that ranks with different plans notice.
    void begin(std::uint64_t plan_hash);

    /// One thread at a time. `bucket` must stay until drain() has returned.
    Result<void> launch(const GradientBucket& bucket, Launch how);

    /// Returns when every launched bucket holds its result.
    Result<void> drain();

    /// A collective beside those of the buckets, to its end; its time counts as exposed.
    Result<void> run(Operation operation);
    /// The same, started, for one whose result nobody waits for. Its time counts for nothing.
    void start(Operation operation);

  private:
    struct Flight {
        const GradientBucket* bucket;
        int stage = 0;  ///< that comes next
        int collective_count = 1;
        Work work{};
        std::vector<Work> earlier{};  ///< of the same bucket, where the exchange is chained
    };

    /// While the exchange is called, in this thread.
    class InExchange {
      public:
        explicit InExchange(const BucketPipeline& pipeline) { inside_ = &pipeline; }
        ~InExchange() { inside_ = nullptr; }
        InExchange(const InExchange&) = delete;
        InExchange& operator=(const InExchange&) = delete;
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

/// What this rank gives to a collective.
std::size_t input_bytes(const Operation& operation, int world);

}  // namespace muster::runtime
