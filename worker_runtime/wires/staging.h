// Working memory of an exchange, in addition to the buckets.
#pragma once

#include <utility>
#include <vector>

#include "muster/bucket_exchange.h"
#include "worker_runtime/core/bucket_plan.h"

namespace muster::runtime {

/// Collects the requests for memory, allocates all at once, and assigns the addresses. Memory that is large enough is
/// reused without clearing it.
class StagingPlan {
  public:
    explicit StagingPlan(Memory& memory) : memory_(memory) {}

    /// take() sets `place` to `wish` with a page-aligned address; `place` must stay valid until then.
    void add(Buffer& place, const Buffer& wish) {
        place = wish;
        pieces_.emplace_back(&place, total_bytes_);
        total_bytes_ +=
            (wish.size_bytes() + bucket_alignment_bytes - 1) / bucket_alignment_bytes * bucket_alignment_bytes;
    }

    /// Allocates the memory. Every rank must have added the same requests.
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
