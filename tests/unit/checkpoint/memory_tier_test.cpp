// Copies that outlive their workers, with ranks that are threads and an agent that is a map.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/unit/checkpoint/saved_model.h"
#include "worker_runtime/checkpoint/snapshot_link.h"

using namespace muster;
using namespace muster::test;
using runtime::OfferedSnapshot;

namespace {

/// Keeps what the workers of a round gave, by rank, for those of the next.
class Agents {
  public:
    std::shared_ptr<runtime::SnapshotLink> link(int rank);
    void lose(int rank) { kept_.erase(rank); }
    [[nodiscard]] const OfferedSnapshot& newest(int rank) { return kept_.at(rank).back(); }

  private:
    class Link;
    std::mutex mutex_;
    std::map<int, std::vector<OfferedSnapshot>> kept_;
};

class Agents::Link final : public runtime::SnapshotLink {
  public:
    Link(Agents& agents, int rank) : agents_(agents), rank_(rank) {}

    bool give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t, const std::string&) override {
        const std::lock_guard lock(agents_.mutex_);
        auto& kept = agents_.kept_[rank_];
        if (kept.size() == 2) kept.erase(kept.begin());
        kept.push_back({FileDescriptor(::dup(memory.get())), size_bytes});
        return true;
    }
    std::vector<OfferedSnapshot> take_offers(Duration) override {
        const std::lock_guard lock(agents_.mutex_);
        std::vector<OfferedSnapshot> offers;
        for (const auto& kept : agents_.kept_[rank_]) {
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

/// A round in which each rank has its agent.
std::string round_of(const std::string& directory, int world, std::int64_t number, Agents& agents,
                     const std::function<std::string(Checkpointer&, SavedModel&)>& body) {
    ThreadGroup group(world);
    StoreInMemory store;
    return group.run([&](Communicator& communicator) -> std::string {
        auto opened = Checkpointer::open(communicator, store.connect(), {.job = "job", .round = number},
                                         {.directory = directory, .snapshot_interval = Duration::zero()},
                                         agents.link(communicator.rank()));
        if (!opened) return opened.error().context;
        SavedModel model(communicator.rank(), communicator.size());
        return body(*opened, model);
    });
}

/// Saves step 10 on the disk, and gives a copy of step 15 to the agents.
std::string train_to_15(const std::string& directory, int world, Agents& agents) {
    return round_of(directory, world, 0, agents, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
        model.train_to(10);
        auto saved = checkpointer.save(10, model.state());
        if (saved) saved = checkpointer.finish();
        model.train_to(15);
        if (saved) saved = checkpointer.snapshot(15, model.state());
        if (saved) saved = checkpointer.finish();
        return saved ? "" : saved.error().context;
    });
}

/// "memory 15" or "disk 10", when all ranks say so and have the right model.
std::string loaded(const std::string& directory, int world, Agents& agents, bool same_world = true) {
    std::string told;
    const auto wrong =
        round_of(directory, world, 1, agents, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            auto report = checkpointer.load(state);
            if (!report) return report.error().context;
            if (!report->has_value()) return "none";
            model.take(state);
            if (!model.is_at((*report)->step, same_world)) return cat("rank ", model.rank, " has another model");
            if (model.rank == 0) told = cat((*report)->from_memory ? "memory " : "disk ", (*report)->step);
            return {};
        });
    return wrong.empty() ? told : wrong;
}

void flip_byte(const OfferedSnapshot& snapshot, off_t at) {
    auto* const memory = static_cast<char*>(
        ::mmap(nullptr, snapshot.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, snapshot.memory.get(), 0));
    REQUIRE(memory != MAP_FAILED);
    memory[at] = static_cast<char>(memory[at] ^ 1);
    ::munmap(memory, snapshot.size_bytes);
}

}  // namespace

TEST_CASE("a round goes on from what the agents kept, where that is newer than the disk") {
    for (int world = 1; world <= 4; ++world) {
        const ScratchFolder scratch;
        Agents agents;
        REQUIRE(train_to_15(scratch / "c", world, agents) == "");
        CHECK(names_of(scratch / "c") == "LATEST LOCK step_00000010");
        CHECK(loaded(scratch / "c", world, agents) == "memory 15");
    }
}

TEST_CASE("joiners receive what survivors have, and a part that nobody has sends all to the disk") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", 2, agents) == "");
    CHECK(loaded(scratch / "c", 4, agents, false) == "memory 15");
    CHECK(loaded(scratch / "c", 1, agents, false) == "disk 10");
    agents.lose(1);
    CHECK(loaded(scratch / "c", 2, agents) == "disk 10");
}

TEST_CASE("a damaged copy counts as none") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", 2, agents) == "");  // of which the agents have step 10 too
    const auto size = static_cast<off_t>(agents.newest(1).size_bytes);
    for (const off_t at : {off_t{3}, off_t{20}, size - 1}) {
        flip_byte(agents.newest(1), at);
        CHECK(loaded(scratch / "c", 2, agents) == "memory 10");
        flip_byte(agents.newest(1), at);
    }
    CHECK(loaded(scratch / "c", 2, agents) == "memory 15");
}

TEST_CASE("the disk is taken where it is newer") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", 2, agents) == "");
    REQUIRE(save_steps(scratch / "c", 2, 0, {20}) == "");
    CHECK(loaded(scratch / "c", 2, agents) == "disk 20");
}

TEST_CASE("the agent's copy stays whole while the next one is made") {
    const ScratchFolder scratch;
    Agents agents;
    const auto wrong =
        round_of(scratch / "c", 2, 0, agents, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            for (std::int64_t step = 1; step <= 7; ++step) {
                model.train_to(step);
                auto kept = checkpointer.snapshot(step, model.state());
                if (kept) kept = checkpointer.finish();
                if (!kept) return kept.error().context;
            }
            // An eighth that one rank cannot make.
            auto state = model.state();
            model.train_to(8);
            state = model.state();
            if (model.rank == 1) {
                state.tensors.push_back(
                    StateTensor::shard("huge", TensorType::u8, {1LL << 50}, model.weight.data(), 0, 1ULL << 50));
            }
            auto kept = checkpointer.snapshot(8, state);
            return kept ? "" : kept.error().context;
        });
    CHECK(wrong == "");
    CHECK(loaded(scratch / "c", 2, agents) == "memory 7");
}

TEST_CASE("copies of another directory, or of two saves of one step, are not taken for one") {
    const ScratchFolder scratch;
    Agents agents;
    // Two checkpointers of one worker share its agent.
    const auto saved = [&](const std::string& folder, std::int64_t step, std::int64_t contents) {
        return round_of(scratch / folder, 2, 0, agents,
                        [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
                            model.train_to(contents);
                            auto done = checkpointer.save(step, model.state());
                            if (done) done = checkpointer.finish();
                            return done ? "" : done.error().context;
                        });
    };
    REQUIRE(saved("model", 10, 10) == "");
    REQUIRE(saved("average", 12, 99) == "");
    CHECK(loaded(scratch / "model", 2, agents) == "memory 10");
    // Of rank 1 the agents have lost the first save of step 20, of rank 0 they have both.
    REQUIRE(saved("model", 20, 98) == "");
    agents.lose(1);
    REQUIRE(saved("model", 20, 20) == "");
    CHECK(loaded(scratch / "model", 2, agents) == "memory 20");
}

TEST_CASE("without an agent a snapshot is nothing, and costs nothing") {
    const ScratchFolder scratch;
    const auto wrong =
        with_checkpointers(scratch / "c", 2, 0, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto kept = checkpointer.snapshot(3, model.state());
            if (kept) kept = checkpointer.snapshot(-1, model.state());
            return kept ? "a negative step was taken" : kept.error().context;
        });
    CHECK_THAT(wrong, Catch::Contains("step -1"));
    CHECK(load_in(scratch / "c", 2, 1) == "none");
}
