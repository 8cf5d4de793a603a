// Working memory of an exchange beside the buckets.
#pragma once

#include <utility>
#include <vector>

#include "muster/bucket_exchange.h"
#include "worker_runtime/core/bucket_plan.h"

namespace muster::runtime {

/// Collects what is needed, takes it all at once, and says where each piece lies. Memory that is large enough already
/// is used again, but not cleared.
class StagingPlan {
  public:
    explicit StagingPlan(Memory& memory) : memory_(memory) {}

    /// `place` becomes `wish` with an address, each at a page, when take() returns; it must stay until then.
    void add(Buffer& place, const Buffer& wish) {
        place = wish;
        pieces_.emplace_back(&place, total_bytes_);
        total_bytes_ +=
            (wish.size_bytes() + bucket_alignment_bytes - 1) / bucket_alignment_bytes * bucket_alignment_bytes;
    }

    /// Every rank must have added the same.
    Result<void> take(const ExchangeTerms& terms) {
        if (memory_.size_bytes() < total_bytes_) {
            memory_ = Memory();
            auto memory = terms.allocate(total_bytes_);
            if (!memory) return with_context(memory.error(), "staging memory for compressed gradients");
            memory_ = std::move(*memory);
        }
        for (const auto& [place, at] : pieces_) place->data = memory_.data() + at;
        return {};
    }

  private:
    Memory& memory_;
    std::size_t total_bytes_ = 0;
    std::vector<std::pair<Buffer*, std::size_t>> pieces_;
};

}  // namespace muster::runtime
