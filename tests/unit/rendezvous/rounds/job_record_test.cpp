// What a daemon keeps: its bytes, what is refused of them, and that a daemon which goes on from them is the same one.
#include "rendezvous/rounds/job_record.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/rounds/kept_world.h"

namespace muster::test {
namespace {

using namespace rendezvous;

std::vector<Record> records_of(const std::map<std::string, std::string>& kept) {
    std::vector<Record> records;
    for (const auto& [key, value] : kept) records.push_back({key, value});
    return records;
}

/// A job in the middle of its life, with every kind of record.
std::vector<Record> sample() {
    for (std::uint64_t seed = 1;; ++seed) {
        KeptWorld world(seed);
        for (int events = 0; events < 60; ++events) {
            world.run(1);
            const auto& kept = world.kept();
            if (kept.contains("failures/job") && kept.size() >= 4) return records_of(kept);
        }
    }
}

/// Drives a daemon that believes these records through what may follow. Whether it is right is not asked.
void live_with(KeptState kept) {
    ServerConfig config;
    config.keep_records = true;
    auto now = Instant(1000s);
    std::vector<native::Message> words;
    for (const auto& job : kept.jobs)
        for (const auto& member : job.members) {
            native::Hello hello;
            hello.job = job.facts.id;
            hello.node = member.node;
            hello.connection = member.connection_number + 1;
            words.push_back(hello);
            words.push_back(member.join);
        }
    Server server(config, now, std::move(kept));
    ConnectionId connection = 0;
    for (const auto& word : words) {
        if (std::holds_alternative<native::Hello>(word)) server.step(ConnectionAccepted{++connection, "10.0.0.1"}, now);
        server.step(Received{connection, word}, now);
    }
    for (int i = 0; i < 20; ++i) server.step(Elapsed{}, now += 60s);
    (void)server.status_json(now);
}

}  // namespace

TEST_CASE("a daemon that is killed after any step and goes on from its records says and keeps the same") {
    int crash_count = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        KeptWorld world(seed);
        INFO("seed " << seed);
        REQUIRE(world.run(150) == "");
        crash_count += world.crash_count();
    }
    CHECK(crash_count > 5'000);
}

TEST_CASE("the comparison finds a record that is lost, and a member that is not let go") {
    const Damage plants[] = {
        [](const Record& record) { return record.key.starts_with("failures/") ? std::string{} : record.value; },
        [](const Record& record) { return record.key.starts_with("groups/") ? std::string{} : record.value; },
        [](const Record& record) {
            return record.key.starts_with("member/") && record.value.empty() ? std::string("kept") : record.value;
        },
    };
    for (const auto plant : plants) {
        std::string found;
        for (std::uint64_t seed = 1; seed <= 200 && found.empty(); ++seed) found = KeptWorld(seed, plant).run(150);
        CHECK_FALSE(found.empty());
    }
}

TEST_CASE("each byte of a record that is changed is refused or harmless") {
    const auto records = sample();
    REQUIRE(decode_state(records).has_value());
    std::size_t refused_count = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const auto step = std::max<std::size_t>(1, records[i].value.size() / 400);
        for (std::size_t at = 0; at < records[i].value.size(); at += step) {
            for (const unsigned bits : {0x01u, 0x80u, 0xffu}) {
                auto damaged = records;
                auto& byte = damaged[i].value[at];
                byte = static_cast<char>(static_cast<unsigned char>(byte) ^ bits);
                auto state = decode_state(damaged);
                if (state)
                    live_with(*std::move(state));
                else
                    ++refused_count;
            }
        }
    }
    CHECK(refused_count > 100);
}

TEST_CASE("a record that is cut short, too long, misplaced or missing is refused") {
    const auto records = sample();
    for (std::size_t i = 0; i < records.size(); ++i) {
        for (const std::size_t length : {std::size_t{0}, std::size_t{1}, records[i].value.size() - 1}) {
            auto cut = records;
            cut[i].value.resize(length);
            CHECK(decode_state(cut).has_error());
        }
        auto longer = records;
        longer[i].value += '\0';
        CHECK(decode_state(longer).has_error());
        auto moved = records;
        moved[i].key += "x";
        CHECK(decode_state(moved).has_error());
        auto newer = records;
        newer[i].value[0] = static_cast<char>(record_version + 1);
        CHECK(decode_state(newer).error().context.find("another version") != std::string::npos);
        if (records[i].key != "job/job") continue;
        auto lacking = records;
        lacking.erase(lacking.begin() + static_cast<std::ptrdiff_t>(i));
        CHECK(decode_state(lacking).has_error());
    }
}

namespace {

/// A daemon and one agent's words to it; the records that it has written.
struct Conversation {
    explicit Conversation(Duration to_wall_clock, KeptState kept = {}, const std::vector<std::string>& keys = {})
        : server(config(to_wall_clock, keys), now, std::move(kept)) {}
    static ServerConfig config(Duration to_wall_clock, const std::vector<std::string>& keys) {
        ServerConfig config;
        if (!keys.empty()) config.secret = [keys](std::string_view) { return hashes(keys); };
        config.keep_records = true;
        config.to_wall_clock = to_wall_clock;
        return config;
    }
    static std::vector<native::KeyedHash> hashes(const std::vector<std::string>& keys) {
        std::vector<native::KeyedHash> all;
        for (const auto& key : keys)
            all.push_back([key](std::string_view text) { return cat(std::hash<std::string>{}(cat(key, text))); });
        return all;
    }
    /// As one that has proved the job's key, where there is one.
    void connect(ConnectionId connection, const char* host, std::uint32_t number) {
        take(server.step(ConnectionAccepted{connection, "10.0.0.1", "j"}, now));
        native::Hello hello;
        hello.job = "j";
        hello.node = {host, 7, 40 + connection % 10};
        hello.connection = number;
        say(connection, hello);
    }
    void say(ConnectionId connection, native::Message message) {
        take(server.step(Received{connection, std::move(message)}, now += 1ms));
    }
    void take(ServerStep step) {
        for (auto& record : step.records) {
            if (record.value.empty())
                records.erase(record.key);
            else
                records[record.key] = record.value;
        }
        for (auto& action : step.actions)
            if (auto* send = std::get_if<SendTo>(&action)) said.push_back(send->message);
    }
    template <class Wanted>
    const Wanted* heard() const {
        const Wanted* found = nullptr;
        for (const auto& message : said)
            if (const auto* one = std::get_if<Wanted>(&message)) found = one;
        return found;
    }
    [[nodiscard]] KeptState kept() const { return *decode_state(records_of(records)); }

    Instant now{1000s};
    Server server;
    std::map<std::string, std::string> records;
    std::vector<native::Message> said;
};

native::Join join_of(std::uint32_t nodes, std::uint32_t restarts) {
    native::Join join;
    join.terms = {.nodes_min = nodes,
                  .nodes_max = nodes,
                  .restarts_max = restarts,
                  .last_call_ms = 1,
                  .lease_ms = 5000,
                  .lost_timeout_ms = 60000};
    join.slots = 1;
    join.role = "default";
    join.addresses = {"10.0.0.1"};
    join.store_port = join.peer_port = 1;
    return join;
}

}  // namespace

TEST_CASE("a node that asks again after the daemon's restart is told the secret of its round again") {
    Conversation first(500s, {}, {"new", "old"});
    const auto join = join_of(2, 3);
    for (const ConnectionId connection : {1, 2}) {
        first.connect(connection, connection == 1 ? "n1" : "n2", 1);
        first.say(connection, join);
    }
    const auto told = [](const Conversation& talk) {
        const auto* assigned = talk.heard<native::Assigned>();
        return assigned == nullptr ? std::string() : assigned->secret;
    };
    REQUIRE_FALSE(told(first).empty());
    for (const auto& [key, value] : first.records) CHECK(value.find(told(first)) == std::string::npos);
    // The keys may have changed places, and the old one may be the only one left or the first.
    for (const auto& keys : {std::vector<std::string>{"new", "old"}, {"old", "new"}, {"newer", "new"}}) {
        Conversation next(500s, first.kept(), keys);
        next.connect(2, "n2", 2);
        next.say(2, join);
        CHECK(told(next) == told(first));
    }
    // Nobody can tell it any more, so nobody waits for ranks with other keys: the round ends, and is not charged.
    Conversation other(500s, first.kept(), {"newest"});
    for (const ConnectionId connection : {1, 2}) other.connect(connection, connection == 1 ? "n1" : "n2", 2);
    other.say(1, native::Resume{0, false, join, *first.heard<native::Assigned>()});
    other.say(2, join);
    CHECK(told(other).empty());
    const auto* ended = other.heard<native::RoundEnded>();
    REQUIRE(ended != nullptr);
    CHECK(ended->reason == native::RoundEndReason::daemon_restarted);
}

TEST_CASE("a failure's time is the same moment on the next daemon's clock") {
    Conversation first(500s);
    first.connect(1, "n1", 1);
    const auto join = join_of(1, 3);
    first.say(1, join);
    first.take(first.server.step(Elapsed{}, first.now += 10s));
    const auto* assigned = first.heard<native::Assigned>();
    REQUIRE(assigned != nullptr);
    const auto told = *assigned;
    Failure failure;
    failure.kind = FailureKind::worker_error;
    failure.host = "n1";
    failure.role = "default";
    failure.at_ns = 7'000'000'000;
    first.say(1, native::WorkersFailed{0, {failure}});
    CHECK(first.kept().jobs.at(0).round.failures.kept().at(0).at_ns == 507'000'000'000);

    Conversation next(-200s, first.kept());
    next.connect(1, "n1", 2);
    next.say(1, native::Resume{0, false, join, told});
    failure.at_ns = 3'000'000'000;
    failure.pid = 4711;  // another one
    next.say(1, native::WorkersFailed{0, {failure}});
    const auto kept = decode_state(records_of([&] {
        auto all = first.records;
        for (const auto& [key, value] : next.records) all[key] = value;
        return all;
    }()));
    REQUIRE(kept.has_value());
    const auto& both = kept->jobs.at(0).round.failures.kept();
    REQUIRE(both.size() == 2);
    CHECK(both[0].at_ns == 507'000'000'000);
    CHECK(both[1].at_ns == -197'000'000'000);
}

TEST_CASE("a window counts from the failure, also where another daemon goes on before the round is judged") {
    auto join = join_of(1, 1);
    join.terms.restarts_window_ms = 10'000;
    Conversation first(500s);
    first.connect(1, "n1", 1);
    first.say(1, join);
    const auto fail = [](Conversation& talk, Round round, std::int32_t pid) {
        Failure failure;
        failure.host = "n1";
        failure.rank = 0;
        failure.pid = pid;
        talk.say(1, native::WorkersFailed{round, {failure}});
    };
    const auto join_again = [&](Conversation& talk, Round round) {
        talk.say(1, native::RoundReport{round, {}, 0});
        join.last_round = round;
        talk.say(1, join);
    };
    fail(first, 0, 1);
    join_again(first, 0);  // charged at 1000 s
    REQUIRE(first.heard<native::Assigned>()->round == 1);
    first.now += 9s;
    fail(first, 1, 2);  // 9 s later: none is left, and its end is announced as the last one
    REQUIRE(first.heard<native::RoundEnded>()->final);

    // The same, but a second later the charge is too old; and the daemon ends before the node has drained.
    Conversation second(500s);
    second.connect(1, "n1", 1);
    join.last_round = no_round;
    second.say(1, join);
    fail(second, 0, 1);
    join_again(second, 0);
    second.now += 10s;
    fail(second, 1, 2);
    REQUIRE_FALSE(second.heard<native::RoundEnded>()->final);
    Conversation next(518s, second.kept());  // eight seconds later by the wall clock
    next.connect(1, "n1", 2);
    join_again(next, 1);  // charged at 1010 s, not now
    REQUIRE(next.heard<native::Assigned>() != nullptr);
    REQUIRE(next.heard<native::Assigned>()->round == 2);
    next.now += 1s;
    fail(next, 2, 3);
    CHECK(next.heard<native::RoundEnded>()->final);  // 9 s after it
    Conversation later(518s, second.kept());
    later.connect(1, "n1", 2);
    join_again(later, 1);
    later.now += 3s;
    fail(later, 2, 3);
    CHECK_FALSE(later.heard<native::RoundEnded>()->final);  // 11 s after it
}

TEST_CASE("restarts that the window no longer covers are left again, also to the next daemon") {
    auto join = join_of(1, 2);
    join.terms.restarts_window_ms = 10'000;
    Conversation first(500s);
    first.connect(1, "n1", 1);
    first.say(1, join);
    const auto left = [](const Conversation& talk) { return talk.server.summaries(talk.now).at(0).restarts_left; };
    CHECK(left(first) == 2);
    Failure failure;
    failure.host = "n1";
    failure.rank = 0;
    first.say(1, native::WorkersFailed{0, {failure}});
    first.say(1, native::RoundReport{0, {}, 0});
    join.last_round = 0;
    first.say(1, join);
    CHECK(left(first) == 1);
    first.now += 9s;
    CHECK(left(first) == 1);
    Conversation next(508s, first.kept());  // eight seconds after the failure by the wall clock
    CHECK(left(next) == 1);
    next.now += 3s;
    CHECK(left(next) == 2);
    first.now += 2s;
    CHECK(left(first) == 2);
    CHECK(first.server.summaries(first.now).at(0).restarts_used == 1);
}

TEST_CASE("a node that was told to leave is told so again by the next daemon") {
    Conversation first(0s);
    first.connect(1, "n1", 1);
    first.connect(2, "n2", 1);
    const auto join = join_of(2, 3);
    first.say(1, join);
    first.say(2, join);
    first.take(first.server.step(Elapsed{}, first.now += 10s));
    const auto* assigned = first.heard<native::Assigned>();
    REQUIRE(assigned != nullptr);
    const auto told = *assigned;  // of the last one that was told
    first.say(
        1, native::Command{.number = 1, .verb = native::CommandVerb::drain_node, .node = "n2", .why = "maintenance"});
    REQUIRE(first.heard<native::Drain>() != nullptr);

    const auto kept = first.kept();
    REQUIRE(kept.jobs.size() == 1);
    const auto leaving =
        std::ranges::find_if(kept.jobs[0].members, [](const Member& member) { return member.leaving; });
    REQUIRE(leaving != kept.jobs[0].members.end());
    CHECK(leaving->node.host == "n2");
    CHECK(leaving->leave_reason.find("maintenance") != std::string::npos);

    Conversation next(0s, kept);
    next.connect(2, "n2", 2);
    next.say(2, native::Resume{0, false, join, told});
    const auto* again = next.heard<native::Drain>();
    REQUIRE(again != nullptr);
    CHECK(again->why.find("maintenance") != std::string::npos);
    next.said.clear();
    next.connect(1, "n1", 2);
    CHECK(next.heard<native::Drain>() == nullptr);
}

TEST_CASE("the layout of records is that of their version") {
    // Where this fails, a field of a record or of a message in it has changed: give record_version one more, and put
    // the new sizes here.
    JobFacts facts;
    facts.id = "j";
    facts.ending.emplace().verdict.first.emplace();
    Member member;
    FailureLedger failures;
    failures.add({});
    CHECK(record_version == 13);
    CHECK(encode_job(facts, SealedRound{}).size() == 357);
    CHECK(encode_member("j", member).size() == 199);
    CHECK(encode_failures("j", failures).size() == 91);
    SealedRound round;
    round.failures = failures;
    round.activities.add("gpu1", {});
    CHECK(encode_groups("j", round).size() == 117);
}

}  // namespace muster::test
