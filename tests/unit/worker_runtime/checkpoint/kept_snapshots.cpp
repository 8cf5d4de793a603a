#include "tests/unit/worker_runtime/checkpoint/kept_snapshots.h"

#include <unistd.h>

#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/ranks.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/tcp/tcp_transport.h"

namespace muster::test {

using runtime::OfferedSnapshot;

class Agents::Link final : public runtime::SnapshotLink {
  public:
    Link(Agents& agents, int rank) : agents_(agents), rank_(rank) {}

    bool give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step, const std::string&) override {
        return give_copy(memory, size_bytes, step, rank_);
    }
    bool give_copy(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step, int rank) override {
        const std::lock_guard lock(agents_.mutex_);
        auto& kept = agents_.kept_[{rank_, rank}];
        auto& steps = agents_.steps_[{rank_, rank}];
        if (kept.size() == 2) {
            kept.erase(kept.begin());
            steps.erase(steps.begin());
        }
        kept.push_back({FileDescriptor(::dup(memory.get())), size_bytes});
        steps.push_back(step);
        return true;
    }
    std::vector<OfferedSnapshot> take_offers(Duration) override {
        const std::lock_guard lock(agents_.mutex_);
        std::vector<OfferedSnapshot> offers;
        for (const auto& [whose, snapshots] : agents_.kept_) {
            if (whose.first != rank_) continue;
            for (const auto& kept : snapshots)
                offers.push_back({FileDescriptor(::dup(kept.memory.get())), kept.size_bytes});
        }
        return offers;
    }

  private:
    Agents& agents_;
    int rank_;
};

std::shared_ptr<runtime::SnapshotLink> Agents::link(int rank) {
    return std::make_shared<Link>(*this, rank);
}

void Agents::lose(int rank) {
    std::erase_if(kept_, [rank](const auto& each) { return each.first.first == rank; });
    std::erase_if(steps_, [rank](const auto& each) { return each.first.first == rank; });
}

void Agents::move(int from, int to) {
    lose(to);
    std::vector<std::pair<int, int>> moved;
    for (const auto& [whose, snapshots] : kept_)
        if (whose.first == from) moved.push_back(whose);
    for (const auto& whose : moved) {
        kept_[{to, whose.second}] = std::move(kept_[whose]);
        kept_.erase(whose);
    }
}

std::string Agents::copies(int rank) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> told;
    for (const auto& [whose, steps] : steps_) {
        if (whose.first != rank || whose.second == rank) continue;
        for (const auto step : steps) told.push_back(cat(whose.second, '@', step));
    }
    return join(told, " ");
}

void flip_byte(const OfferedSnapshot& snapshot, std::int64_t at) {
    char byte = 0;
    MUSTER_CHECK(::pread(snapshot.memory.get(), &byte, 1, at) == 1, at);
    byte = static_cast<char>(byte ^ 1);
    MUSTER_CHECK(::pwrite(snapshot.memory.get(), &byte, 1, at) == 1, at);
}

Result<std::unique_ptr<Communicator>> loopback_group(const std::shared_ptr<MeetingInMemory>& place,
                                                     const std::vector<int>& members, int rank) {
    const auto own = std::find(members.begin(), members.end(), rank) - members.begin();
    const auto connect = [](const runtime::GroupTerms& group) {
        return runtime::make_tcp_transport(group, {.addresses = {"127.0.0.1"}});
    };
    runtime::CommunicatorBody::Terms terms{.group = {.rank = static_cast<int>(own),
                                                     .size = static_cast<int>(members.size()),
                                                     .id = cat("copies.", members.front()),
                                                     .place = place},
                                           .make_transport = connect};
    auto transport = connect(terms.group);
    if (!transport) return transport.error();
    return std::make_unique<Communicator>(
        std::make_shared<runtime::CommunicatorBody>(std::move(terms), std::move(*transport)));
}

std::string round_with_agents(const std::string& directory, int world, std::int64_t number, Agents& agents,
                              const std::function<std::string(Checkpointer&, SavedModel&)>& body,
                              const std::vector<int>& nodes, CheckpointOptions options) {
    ThreadGroup group(world);
    StoreInMemory store;
    const auto place = std::make_shared<MeetingInMemory>();
    options.directory = directory;
    options.snapshot_interval = Duration::zero();
    return group.run([&](Communicator& communicator) -> std::string {
        const int rank = communicator.rank();
        CheckpointNeighbours neighbours;
        if (!nodes.empty()) neighbours.node = nodes[static_cast<std::size_t>(rank)];
        neighbours.make_group = [&](const std::vector<int>& members) { return loopback_group(place, members, rank); };
        auto opened = Checkpointer::open(communicator, store.connect(), {.job = "job", .round = number}, options,
                                         agents.link(rank), neighbours);
        if (!opened) return opened.error().context;
        SavedModel model(rank, communicator.size());
        return body(*opened, model);
    });
}

std::string loaded(const std::string& directory, int world, Agents& agents, bool same_world,
                   const CheckpointOptions& options) {
    std::string told;
    const auto wrong = round_with_agents(
        directory, world, 1, agents,
        [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            auto report = checkpointer.load(state);
            if (!report) return report.error().context;
            if (model.rank == 0) told = "none";
            if (!report->has_value()) return {};
            model.take(state);
            if (!model.is_at((*report)->step, same_world)) return cat("rank ", model.rank, " has another model");
            const auto* const from = (*report)->from_memory       ? "memory "
                                     : (*report)->from_local_disk ? "local "
                                                                  : "disk ";
            if (model.rank == 0) told = cat(from, (*report)->step);
            return {};
        },
        {}, options);
    return wrong.empty() ? told : wrong;
}

}  // namespace muster::test
