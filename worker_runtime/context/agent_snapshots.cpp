#include "worker_runtime/context/agent_snapshots.h"

#include <utility>

namespace muster::runtime {

void AgentSnapshots::connect(AgentLink& agent) {
    const std::lock_guard lock(mutex_);
    agent_ = &agent;
}

void AgentSnapshots::disconnect() {
    const std::lock_guard lock(mutex_);
    agent_ = nullptr;
}

void AgentSnapshots::add_offer(const local::Offer& offer, FileDescriptor memory) {
    if (offer.kind == local::HandoverKind::flight_record || !memory.valid()) return;
    const std::lock_guard lock(mutex_);
    offers_.push_back({std::move(memory), offer.size_bytes});
    heard_.notify_all();
}

bool AgentSnapshots::give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step,
                          const std::string& directory) {
    const std::lock_guard lock(mutex_);
    const local::Give give{
        .kind = local::HandoverKind::snapshot, .size_bytes = size_bytes, .step = step, .directory = directory};
    return agent_ != nullptr && agent_->send(give, &memory);
}

bool AgentSnapshots::give_copy(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step, int rank) {
    const std::lock_guard lock(mutex_);
    const local::Give give{local::HandoverKind::copy, size_bytes, step, rank};
    return agent_ != nullptr && agent_->send(give, &memory);
}

std::vector<OfferedSnapshot> AgentSnapshots::take_offers(Duration limit) {
    std::unique_lock lock(mutex_);
    heard_.wait_for(lock, limit, [this] { return offers_.size() >= expected_; });
    expected_ = 0;
    return std::exchange(offers_, {});
}

}  // namespace muster::runtime
