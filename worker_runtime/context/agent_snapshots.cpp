#include "worker_runtime/context/agent_snapshots.h"

#include <utility>

namespace muster::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// Between two tries: the limit of descriptors under way may be reached, for which no poll waits.
constexpr Duration give_pause = 5ms;

}  // namespace

void AgentSnapshots::connect(AgentLink& agent) {
    const std::lock_guard lock(mutex_);
    agent_ = &agent;
}

void AgentSnapshots::disconnect() {
    const std::lock_guard lock(mutex_);
    agent_ = nullptr;
    heard_.notify_all();
}

void AgentSnapshots::add_offer(const local::Offer& offer, FileDescriptor memory) {
    if (offer.kind == local::HandoverKind::flight_record || !memory.valid()) return;
    const std::lock_guard lock(mutex_);
    offers_.push_back({std::move(memory), offer.size_bytes});
    heard_.notify_all();
}

bool AgentSnapshots::give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step,
                          const std::string& directory) {
    return send({.kind = local::HandoverKind::snapshot, .size_bytes = size_bytes, .step = step, .directory = directory},
                memory, was_taken_);
}

bool AgentSnapshots::give_copy(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step, int rank) {
    return send({local::HandoverKind::copy, size_bytes, step, rank}, memory, copy_was_taken_);
}

bool AgentSnapshots::send(const local::Give& give, const FileDescriptor& memory, bool& was_taken) {
    std::unique_lock lock(mutex_);
    const auto until = Clock::now() + (was_taken ? give_time_max_ : Duration::zero());
    was_taken = false;
    while (agent_ != nullptr && !was_taken) {
        was_taken = agent_->send(give, &memory);
        if (was_taken || has_failed() || Clock::now() >= until) break;
        heard_.wait_for(lock, give_pause);
    }
    return was_taken;
}

std::vector<OfferedSnapshot> AgentSnapshots::take_offers(Duration limit) {
    std::unique_lock lock(mutex_);
    heard_.wait_for(lock, limit, [this] { return offers_.size() >= expected_; });
    expected_ = 0;
    return std::exchange(offers_, {});
}

}  // namespace muster::runtime
