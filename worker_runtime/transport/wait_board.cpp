#include "worker_runtime/transport/wait_board.h"

#include <set>
#include <utility>

namespace muster::runtime {

std::vector<int> WaitBoard::awaited() const {
    const std::lock_guard lock(mutex_);
    std::set<int> all;
    for (const auto& [id, awaited] : entries_) {
        const auto ranks = awaited();
        all.insert(ranks.begin(), ranks.end());
    }
    return {all.begin(), all.end()};
}

void WaitBoard::trace_with(Trace trace) {
    const std::lock_guard lock(tracing_);
    trace_ = std::move(trace);
}

std::optional<Result<FailedRanks>> WaitBoard::trace(const std::vector<int>& late) const {
    const std::shared_lock lock(tracing_);
    return trace_ ? std::optional(trace_(late)) : std::nullopt;
}

WaitEntry::WaitEntry(std::shared_ptr<WaitBoard> board, WaitBoard::Awaited awaited) : board_(std::move(board)) {
    const std::lock_guard lock(board_->mutex_);
    id_ = board_->next_id_++;
    board_->entries_[id_] = std::move(awaited);
}

WaitEntry::~WaitEntry() {
    const std::lock_guard lock(board_->mutex_);
    board_->entries_.erase(id_);
}

}  // namespace muster::runtime
