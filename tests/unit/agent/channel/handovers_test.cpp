#include <sys/mman.h>

#include "rendezvous/base/text/text.h"
#include "tests/unit/agent/channel/channel_rig.h"

using namespace muster;
using namespace muster::agent;

TEST_CASE("of other ranks' snapshots the newest two of each are kept, and offered to the next round's worker") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    const auto give = [](Worker& giver, local::HandoverKind kind, std::int64_t step, std::int32_t rank) {
        const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
        giver.give({kind, static_cast<std::uint64_t>(step), step, rank}, memory.get());
    };
    for (const std::int64_t step : {5, 6, 7}) {
        give(worker, local::HandoverKind::copy, step, 2);
        give(worker, local::HandoverKind::copy, step + 10, 3);
    }
    worker.say(local::Progress{1});
    REQUIRE(rig.run_until([&] { return rig.facts().step == 1; }));
    CHECK(rig.channel->take_snapshots().empty());
    auto copies = rig.channel->take_copies();
    std::vector<std::int64_t> steps;
    for (const auto& copy : copies) steps.push_back(copy.step);
    CHECK(steps == std::vector<std::int64_t>{6, 16, 7, 17});

    rig.channel = std::move(AgentChannel::open(rig.loop, 3, {}, std::move(copies)).value());
    Worker next(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().runtime == "muster 0.1.0"; }));
    for (const auto step : steps) {
        const auto heard = local::decode(next.hear(), local::Sender::agent);
        REQUIRE(heard.has_value());
        CHECK(heard.value() ==
              local::Message(local::Offer{local::HandoverKind::copy, static_cast<std::uint64_t>(step)}));
    }
    // Its own second snapshot is newer than all that was carried over.
    give(next, local::HandoverKind::copy, 20, 2);
    give(next, local::HandoverKind::snapshot, 20, -1);
    give(next, local::HandoverKind::snapshot, 21, -1);
    next.say(local::Progress{2});
    REQUIRE(rig.run_until([&] { return rig.facts().step == 2; }));
    copies = rig.channel->take_copies();
    REQUIRE(copies.size() == 1);
    CHECK(copies.front().step == 20);
}

namespace {

/// The worker of a round gives snapshots and, of rank 2, copies of these steps; what is kept afterwards, of either.
void next_round(ChannelRig& rig, std::vector<MemoryHandover>& snapshots, std::vector<MemoryHandover>& copies,
                const std::vector<std::int64_t>& steps, const std::string& directory = "/ckpt") {
    rig.channel = std::move(AgentChannel::open(rig.loop, 3, std::move(snapshots), std::move(copies)).value());
    Worker worker(*rig.channel);
    for (const auto step : steps) {
        const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
        worker.give({local::HandoverKind::copy, 7, step, 2}, memory.get());
        worker.give({local::HandoverKind::snapshot, 7, step, -1, directory}, memory.get());
    }
    worker.say(local::Progress{1});
    REQUIRE(rig.run_until([&] { return rig.facts().step == 1; }));
    snapshots = rig.channel->take_snapshots();
    copies = rig.channel->take_copies();
}

std::string steps_of(const std::vector<MemoryHandover>& handovers) {
    std::string steps;
    for (const auto& gift : handovers) steps += cat(steps.empty() ? "" : " ", gift.step);
    return steps;
}

}  // namespace

TEST_CASE("what a round went on from stays until that round has a snapshot that all its ranks have") {
    ChannelRig rig;
    std::vector<MemoryHandover> snapshots, copies;
    next_round(rig, snapshots, copies, {13, 14, 15});
    CHECK(steps_of(snapshots) == "14 15");
    SECTION("the first snapshot is one of this rank alone, the second one says that all have the first") {
        next_round(rig, snapshots, copies, {20});
        CHECK(steps_of(snapshots) == "14 15 20");
        CHECK(steps_of(copies) == "14 15 20");
        next_round(rig, snapshots, copies, {21, 22});
        CHECK(steps_of(snapshots) == "21 22");
        CHECK(steps_of(copies) == "21 22");
    }
    SECTION("round after round that ends behind its first snapshot goes on from the same step") {
        for (int round = 0; round < 3; ++round) {
            next_round(rig, snapshots, copies, {15});  // from 14, which all had
            CHECK_THAT(steps_of(snapshots), Catch::StartsWith("14 15"));
            CHECK_THAT(steps_of(copies), Catch::StartsWith("14 15"));
            CHECK(snapshots.size() <= 4);
        }
    }
    SECTION("a round that has given nothing leaves all") {
        next_round(rig, snapshots, copies, {});
        CHECK(steps_of(snapshots) == "14 15");
        CHECK(steps_of(copies) == "14 15");
    }
    SECTION("two directories do not take each other's place") {
        next_round(rig, snapshots, copies, {16, 17, 18}, "/average");
        CHECK(steps_of(snapshots) == "14 15 17 18");
    }
}

TEST_CASE("a worker that gives copies of many ranks has a limit") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
    for (std::int32_t rank = 0; rank < 40; ++rank) worker.give({local::HandoverKind::copy, 7, 1, rank}, memory.get());
    worker.say(local::Progress{1});
    REQUIRE(rig.run_until([&] { return rig.facts().step == 1; }));
    CHECK(rig.channel->take_copies().size() == 24);
}

TEST_CASE("all that a worker said before its end is read, however far behind the agent was") {
    ChannelRig rig;
    Worker worker(*rig.channel);
    REQUIRE(rig.run_until([&] { return rig.facts().connected; }));
    constexpr int steps = 250;  // more than some turns of the loop read, fewer than the queue holds
    worker.hold_much();
    for (int step = 1; step <= steps; ++step) {
        const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
        worker.give({local::HandoverKind::snapshot, 7, step, -1, "/ckpt"}, memory.get());
    }
    SECTION("until its place is empty") {
        worker.go();
        const auto kept = rig.channel->take_snapshots();
        REQUIRE(!kept.empty());
        CHECK(kept.back().step == steps);
        CHECK(kept.back().directory == "/ckpt");
    }
    SECTION("until the next process in its place is heard") {
        worker.go();
        Worker next(*rig.channel, "muster 0.2.0");
        CHECK(rig.run_until([&] { return rig.facts().runtime == "muster 0.2.0"; }));
    }
}
