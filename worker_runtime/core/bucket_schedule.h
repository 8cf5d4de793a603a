// One backward pass: which gradients are ready, and which buckets may be launched.
//
// Buckets are launched strictly in plan order, whatever the order in which gradients become ready. All ranks therefore
// run the same collectives. Bucket k is launchable when all gradients of buckets 0..k are ready. Two kinds are held
// until the end of the pass (see take_launchable()):
//   - the last regular bucket: nothing is left to hide its collective, and in the thread that waits for it anyway it
//   costs
//     no thread switch;
//   - rare buckets: only after all ranks have reported which of their parameters they used.
//
// Any threads may call mark_ready() at once: the marks and counters are atomic. The counter of a bucket is decremented
// with acquire-release order, so the launching thread sees all gradients written before they were marked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker_runtime/core/bucket_plan.h"

namespace muster::runtime {

enum class Marked : std::uint8_t {
    noted,
    bucket_complete,  ///< The last one of its bucket: call take_launchable().
    twice,            ///< It was ready in this pass already; nothing has changed.
};

/// Buckets [begin, end).
struct BucketRange {
    std::size_t begin = 0;
    std::size_t end = 0;
    [[nodiscard]] bool empty() const { return begin == end; }
    friend bool operator==(const BucketRange&, const BucketRange&) = default;
};

/// begin_pass(), mark_ready() of every parameter that takes part, end_pass(). Everything but mark_ready() is called by
/// one thread at a time; begin_pass() and end_pass() not beside mark_ready().
class BucketSchedule {
  public:
    explicit BucketSchedule(const BucketPlan& plan);

    /// Nothing is ready.
    void begin_pass();

    /// `parameter` is one of the plan's.
    Marked mark_ready(std::int32_t parameter);

    /// The buckets that have become launchable since the last call. Never the last regular bucket, nor a rare one.
    BucketRange take_launchable();

    /// Marking is over. The buckets not taken yet: the regular ones that remain. What was not marked takes part as it
    /// stands (the caller has zeroed it).
    BucketRange end_pass();

    [[nodiscard]] bool is_ready(std::int32_t parameter) const;

    /// What was marked in this pass, in that order. After end_pass().
    [[nodiscard]] std::span<const std::int32_t> observed() const { return {observed_.data(), observed_count_}; }

  private:
    struct alignas(64) Counter {
        std::atomic<std::int32_t> pending{0};
    };

    std::vector<std::int32_t> bucket_of_;
    std::vector<std::int32_t> sizes_;  ///< Number of parameters of each bucket.
    std::size_t regular_count_;
    std::vector<Counter> counters_;
    /// The number of the pass in which a parameter was marked last, so that a new pass need not clear them.
    std::vector<std::atomic<std::uint32_t>> marked_in_;
    std::uint32_t pass_ = 0;
    std::size_t next_ = 0;
    std::atomic<std::size_t> position_{0};
    std::vector<std::int32_t> observed_;
    std::size_t observed_count_ = 0;
};

}  // namespace muster::runtime
