#include "rendezvous/rounds/seen_nodes.h"

#include "rendezvous/rounds/status.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

struct Reader {
    std::map<Incarnation, Member> members;
    SeenNodes seen;
    Instant now{};

    Member& join(Incarnation incarnation) {
        auto& member = members[incarnation];
        member.node = {.host = "h" + std::to_string(incarnation), .pid = 1, .incarnation = incarnation};
        return member;
    }
    /// "1 2 -3": nodes that changed, and those that are gone.
    std::string look() {
        std::string text;
        const auto gone = seen.look_at(members, now, 3s, [&](const Member& member, std::int64_t silent_s) {
            text +=
                std::to_string(member.node.incarnation) + (silent_s < 0 ? "" : "!" + std::to_string(silent_s)) + " ";
        });
        for (const auto incarnation : gone) text += "-" + std::to_string(incarnation) + " ";
        return text;
    }
};

native::SeenWorker waiting(std::int32_t rank, std::uint32_t idle_ms) {
    native::SeenWorker worker;
    worker.at.rank = rank;
    worker.at.idle_ms = idle_ms;
    worker.at.operation = "all_reduce 41 of world";
    worker.pace = native::WorkerPace::waiting;
    return worker;
}

}  // namespace

TEST_CASE("a reader gets each node once, and then those that changed or went") {
    Reader reader;
    CHECK(reader.look().empty());
    for (const Incarnation one : {3, 1, 2}) reader.join(one);
    CHECK(reader.look() == "1 2 3 ");
    CHECK(reader.look().empty());
    reader.members.erase(2);
    reader.join(4);
    CHECK(reader.look() == "4 -2 ");
    reader.members.erase(4);
    reader.members.erase(1);
    CHECK(reader.look() == "-1 -4 ");
    CHECK(reader.look().empty());
    reader.join(2);
    CHECK(reader.look() == "2 ");
}

TEST_CASE("whatever is shown of a node makes it new, and nothing else does") {
    Reader reader;
    auto& member = reader.join(1);
    reader.join(2);
    reader.look();
    const std::vector<std::function<void()>> changes{
        [&] { member.place = Place::running; },
        [&] { member.parked_at = 1; },
        [&] { member.connection = 7; },
        [&] { member.round = 3; },
        [&] { member.group_rank = 1; },
        [&] { member.rank_base = 8; },
        [&] { member.join.slots = 8; },
        [&] { member.join.role = "trainer"; },
        [&] { member.excluded = true; },
        [&] { member.health = Health::doubted; },
        [&] { member.join.unhealthy = "a GPU is missing"; },
        [&] { member.workers_seen = {waiting(8, 5'000)}; },
        [&] { member.workers_seen = {waiting(8, 6'000)}; },
        [&] { member.workers_seen[0].at.place = "step (train.py:31)"; },
        [&] { member.workers_seen[0].pace = native::WorkerPace::overdue; },
        [&] { member.workers_seen.push_back(waiting(9, 1)); },
        [&] { member.workers_seen.clear(); },
        [&] { member.standbys = {.count = 2, .memory_bytes = 1}; },
        [&] { member.standbys.memory_bytes = 2; },
        [&] { member.gpus = {{.index = 0, .percent = 97}}; },
        [&] { member.gpus[0].percent = 96; },
    };
    for (std::size_t i = 0; i < changes.size(); ++i) {
        CAPTURE(i);
        changes[i]();
        CHECK(reader.look() == "1 ");
        CHECK(reader.look().empty());
    }
    member.workers_seen = {native::SeenWorker{}};  // a busy one
    member.last_received = Instant(1s);
    reader.now = Instant(2s);
    CHECK(reader.look().empty());
}

TEST_CASE("a reader of a job without nodes hears that those it knows are gone") {
    Reader reader;
    for (const Incarnation one : {3, 1}) reader.join(one);
    reader.look();
    const auto pieces = without_nodes("null", reader.now, reader.seen);
    CHECK(pieces.job == "null");
    CHECK(pieces.gone == std::vector<std::string>{"1", "3"});
    CHECK(without_nodes("null", reader.now, reader.seen).gone.empty());
}

TEST_CASE("a silence is shown from its limit on, second by second") {
    Reader reader;
    reader.join(1);
    reader.look();
    reader.now = Instant(2'999ms);
    CHECK(reader.look().empty());
    reader.now = Instant(3s);
    CHECK(reader.look() == "1!3 ");
    reader.now = Instant(3'900ms);
    CHECK(reader.look().empty());
    reader.now = Instant(4s);
    CHECK(reader.look() == "1!4 ");
    reader.members[1].last_received = reader.now;
    CHECK(reader.look() == "1 ");
}
