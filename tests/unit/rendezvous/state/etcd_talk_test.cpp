// One daemon and an etcd that answers at once: what is asked, and what a person is told.
#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/state/etcd/etcd_core.h"
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/state/simulated_etcd.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

/// One daemon's core and an etcd that answers at once.
class Talk {
  public:
    explicit Talk(EtcdConfig config, test::SimulatedEtcd* etcd = nullptr, Instant start = Instant(1000s))
        : now(start), core(std::move(config)), etcd_(etcd) {
        take(core.start(now));
    }

    /// Questions are answered until there are none; what the core says beside them is kept.
    void take(EtcdCore::Outputs outputs) {
        for (auto& output : outputs) {
            if (const auto* ask = std::get_if<SendToEtcd>(&output)) {
                asked.push_back(*ask);
                if (etcd_ == nullptr) continue;
                const auto call = encode(ask->request);
                const auto response = etcd_->call(call.path, call.body, now, ask->token);
                take(core.answered(ask->id, decode_answer(ask->request, response.status, response.body), now));
            } else if (const auto* remark = std::get_if<LogNote>(&output)) {
                remarks.push_back(remark->line);
            } else if (const auto* stand_by = std::get_if<StandBy>(&output)) {
                leader = stand_by->leader;
                failing.clear();
            } else if (auto* failed = std::get_if<Failing>(&output)) {
                failing = std::move(failed->why);
            } else if (const auto* done = std::get_if<Kept>(&output)) {
                kept = done->sequence;
            } else if (auto* lead = std::get_if<Lead>(&output)) {
                ++led;
                records = std::move(lead->records);
            }
        }
    }
    void pass(Duration duration) {
        const auto end = now + duration;
        while (core.deadline() <= end) {
            now = std::max(now, core.deadline());
            take(core.tick(now));
        }
        now = end;
    }

    Instant now;
    EtcdCore core;
    std::vector<SendToEtcd> asked;
    std::vector<std::string> remarks;
    std::string leader;
    std::string failing;  ///< what agents are told: until the leader is named
    std::uint64_t kept = 0;
    std::vector<Record> records;
    int led = 0;

  private:
    test::SimulatedEtcd* etcd_;
};

EtcdConfig candidate(std::string self) {
    EtcdConfig config;
    config.self = std::move(self);
    return config;
}

}  // namespace

TEST_CASE("a forgotten token is fetched anew, and the lead is not lost over it") {
    test::SimulatedEtcd etcd;
    etcd.set_user("daemons", "right");
    auto config = candidate("a:1");
    config.user = "daemons";
    config.password = "right";
    Talk talk(config, &etcd);
    talk.pass(1s);
    CHECK(talk.led == 1);
    for (int times = 0; times < 20; ++times) {
        etcd.forget_tokens();
        talk.pass(300ms);
        talk.take(talk.core.write(static_cast<std::uint64_t>(times) + 1, {{"k", std::to_string(times)}}, talk.now));
    }
    CHECK(talk.led == 1);
    CHECK(etcd.value(cat("muster/v", record_version, "/state/k")) == "19");
    CHECK(talk.remarks.empty());
    CHECK(std::ranges::none_of(talk.asked, [](const SendToEtcd& ask) {
        return std::holds_alternative<Authenticate>(ask.request) && !ask.token.empty();
    }));
}

TEST_CASE("a wrong password is told of once, and asked again with patience") {
    test::SimulatedEtcd etcd;
    etcd.set_user("daemons", "right");
    auto config = candidate("a:1");
    config.user = "daemons";
    config.password = "wrong";
    Talk talk(config, &etcd);
    talk.pass(60s);
    CHECK(talk.led == 0);
    CHECK(talk.asked.size() == 31);  // each 2 s, and nothing else
    REQUIRE(talk.remarks.size() == 1);
    CHECK(talk.remarks[0].find("authentication failed") != std::string::npos);
    // Another administrator puts it right.
    etcd.set_user("daemons", "wrong");
    talk.pass(3s);
    CHECK(talk.led == 1);
}

TEST_CASE("without a user an etcd that has users is told of, and a user where it has none does no harm") {
    test::SimulatedEtcd guarded;
    guarded.set_user("daemons", "right");
    Talk talk(candidate("a:1"), &guarded);
    talk.pass(20s);
    CHECK(talk.led == 0);
    REQUIRE(talk.remarks.size() == 1);
    CHECK(talk.remarks[0].find("user name is empty") != std::string::npos);
    CHECK(talk.asked.size() < 15);

    test::SimulatedEtcd open;
    auto config = candidate("a:1");
    config.user = "daemons";
    Talk easy(config, &open);
    easy.pass(1s);
    CHECK(easy.led == 1);
    CHECK(easy.remarks == std::vector<std::string>{"etcd has authentication disabled; the user daemons is ignored"});
}

TEST_CASE("who only looks never leads, and knows who does") {
    test::SimulatedEtcd etcd;
    Talk looks(
        [] {
            auto config = candidate("");
            config.candidate = false;
            return config;
        }(),
        &etcd);
    looks.pass(5s);
    CHECK(looks.led == 0);
    CHECK(looks.leader.empty());
    CHECK(etcd.key_count() == 0);
    Talk leads(candidate("a:1"), &etcd);
    leads.now = looks.now;
    leads.pass(1s);
    looks.pass(1s);
    CHECK(looks.leader == "a:1");
    leads.take(leads.core.resign(leads.now));
    looks.pass(1s);
    CHECK(looks.leader.empty());
    CHECK(looks.remarks.empty());
}

TEST_CASE("who stands by only reads") {
    test::SimulatedEtcd etcd;
    Talk first(candidate("a:1"), &etcd);
    first.pass(1s);
    Talk second(candidate("b:1"), &etcd);
    second.pass(1s);
    CHECK(second.leader == "a:1");
    CHECK(std::ranges::none_of(second.asked,
                               [](const SendToEtcd& ask) { return std::holds_alternative<Transaction>(ask.request); }));
}

TEST_CASE("whoever resigns writes what it was given first, and leaves nothing behind where the job is over") {
    for (const bool over : {false, true}) {
        test::SimulatedEtcd etcd;
        auto config = candidate("a:1");
        config.is_of_one_job = true;
        Talk talk(config, &etcd);
        talk.pass(1s);
        talk.take(talk.core.write(1, {{"job/x", "runs"}}, talk.now));
        talk.take(talk.core.write(2, {{"job/x", "ends"}}, talk.now));
        if (over) talk.core.sweep_at_end();
        talk.take(talk.core.resign(talk.now));
        CHECK((talk.core.resigned() && etcd.value("muster/leader").empty()));
        CHECK(etcd.value(cat("muster/v", record_version, "/state/job/x")) == (over ? "" : "ends"));
        CHECK(((etcd.key_count() == 0) == over && talk.remarks.empty()));
    }
    // The answer to the last write comes late: it is waited for.
    auto config = candidate("a:1");
    test::SimulatedEtcd etcd;
    Talk talk(config, &etcd);
    talk.pass(1s);
    auto write = talk.core.write(1, {{"job/x", "runs"}}, talk.now);
    CHECK(talk.core.resign(talk.now).empty());
    CHECK_FALSE(talk.core.resigned());
    talk.take(std::move(write));
    CHECK(talk.core.resigned());
    CHECK(etcd.value(cat("muster/v", record_version, "/state/job/x")) == "runs");
}

TEST_CASE("a new leader tells which records of other versions it leaves alone, and none of its own") {
    test::SimulatedEtcd etcd;
    Talk old(candidate("a:1"), &etcd);
    old.pass(1s);
    old.take(old.core.write(1, {{"job/x", "runs"}}, old.now));
    CHECK(old.remarks.empty());
    const auto put = [&](const std::string& key) {
        Transaction write;
        write.then = {Put{key, "runs"}};
        const auto call = encode(write);
        etcd.call(call.path, call.body, old.now);
    };
    put("muster/v1/state/job/x");
    put("muster/v1/batch-count");
    put("muster/v2/state/job/y");
    put("muster/version");
    old.take(old.core.resign(old.now));
    Talk next(candidate("b:1"), &etcd);
    next.pass(1s);
    REQUIRE(next.led == 1);
    REQUIRE(next.records.size() == 1);
    CHECK((next.records.front().key == "job/x" && next.records.front().value == "runs"));
    REQUIRE(next.remarks.size() == 1);
    CHECK(next.remarks.front().find(cat("below muster/v1/ and muster/v2/; this musterd uses muster/v", record_version,
                                        "/ alone")) != std::string::npos);
}

TEST_CASE("a new leader reads records that are too large for one answer in smaller pages") {
    test::SimulatedEtcd etcd;
    Talk first(candidate("a:1"), &etcd);
    first.pass(1s);
    for (std::uint64_t number = 1; number <= 100; ++number)
        first.take(first.core.write(number, {{cat("job/", number), std::string(1'000, 'x')}}, first.now));
    REQUIRE(first.kept == 100);
    first.take(first.core.resign(first.now));
    etcd.answer_bytes_max = 20'000;  // of a dozen records
    Talk next(candidate("b:1"), &etcd);
    next.pass(1s);
    CHECK(next.led == 1);
    CHECK(next.records.size() == 100);
}

TEST_CASE("a state that is of no use is set aside for people, and no leader reads it again") {
    test::SimulatedEtcd etcd;
    Talk talk(candidate("a:1"), &etcd);
    talk.pass(1s);
    talk.take(talk.core.write(1, {{"job/x", "damaged"}, {"job/y", "good"}}, talk.now));
    talk.take(talk.core.set_aside({{"job/x", "damaged"}}, talk.now));
    CHECK(etcd.value(cat(talk.core.aside_key(), "job/x")) == "damaged");
    CHECK(etcd.value(talk.core.state_key("job/x")) + etcd.value(talk.core.state_key("job/y")) == "good");
    talk.take(talk.core.set_aside({{"job/y", "good"}}, talk.now));
    Talk next(candidate("b:1"), &etcd);
    for (int second = 0; second < 5; ++second) next.pass(1s);
    next.core.sweep_at_end();  // the job's end takes all keys but these
    next.take(next.core.resign(next.now));
    CHECK((next.led == 1 && next.records.empty() && etcd.key_count() == 2));
}

TEST_CASE("a full etcd is told of once with the remedy, is no unreachable one, and its room is told of once") {
    test::SimulatedEtcd etcd;
    Talk talk(candidate("a:1"), &etcd);
    talk.pass(1s);
    REQUIRE(talk.led == 1);
    etcd.is_full = true;
    talk.take(talk.core.write(1, {{"k", "v"}}, talk.now));
    talk.pass(60s);
    CHECK(talk.led == 1);
    CHECK(talk.kept == 0);
    CHECK(talk.failing.find("database space exceeded") != std::string::npos);
    CHECK(talk.failing.find("etcdctl alarm disarm") != std::string::npos);
    REQUIRE(talk.remarks.size() == 1);
    CHECK(talk.remarks[0].starts_with(talk.failing));
    etcd.is_full = false;
    talk.pass(1s);
    CHECK(talk.kept == 1);
    REQUIRE(talk.remarks.size() == 2);
    CHECK(talk.remarks[1] == "etcd accepts writes again");
}

TEST_CASE("a daemon that starts on a full etcd, and one that would lead then, say so until there is a leader") {
    test::SimulatedEtcd etcd;
    Talk first(candidate("a:1"), &etcd);
    Talk second(candidate("b:1"), &etcd);
    first.pass(1s);
    second.pass(1s);
    REQUIRE(second.leader == "a:1");
    etcd.is_full = true;
    Talk third(candidate("c:1"), &etcd);
    third.pass(1s);
    CHECK(third.failing.find("database space exceeded") != std::string::npos);
    CHECK(second.failing.empty());  // a follower writes nothing
    first.take(first.core.resign(first.now));
    second.pass(1s);
    CHECK(second.led == 0);
    CHECK(second.failing.find("database space exceeded") != std::string::npos);
    // The leader that it knew leads again.
    etcd.is_full = false;
    Talk again(candidate("a:1"), &etcd, second.now);
    second.pass(1s);
    third.pass(1s);
    CHECK(again.led == 1);
    for (const auto* follower : {&second, &third}) {
        CHECK(follower->leader == "a:1");
        CHECK(follower->failing.empty());
    }
}
