// Daemons that contend for an etcd of the test's own, over a network that loses and delays, with time as an argument.
#include "rendezvous/state/etcd/etcd_core.h"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job_record.h"
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/state/simulated_etcd.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t seed_count = 40;  // each takes ten times as long
#else
constexpr std::uint64_t seed_count = 150;
#endif

/// Bugs that the world must find.
enum class Plant { none, no_fence, no_serial, no_lease_limit };

class World {
  public:
    World(std::uint64_t seed, Plant plant = Plant::none) : random_(seed), plant_(plant) {
        etcd_.on_put = [this](const std::string& key, const std::string& before, const std::string& after) {
            if (!key.ends_with("/state/counter")) return;
            const auto was = before.empty() ? 0 : std::stoll(before);
            const auto is = std::stoll(after);
            if (is == was) return;  // a large step that the next leader puts in its place once more
            // One transaction may stand for several steps, but never goes back, and nobody counts what another counted.
            if (is <= was || !counted_.insert(is).second) fail(cat("the counter goes from ", was, " to ", is));
        };
        for (auto& daemon : daemons_) daemon.clock = Duration{static_cast<std::int64_t>(random_() % 3'600'000'000'000)};
        for (std::size_t i = 0; i < 3; ++i) at(Duration{below(1000) * 1'000'000}, [this, i] { start(i); });
        at(10ms, [this] { work(); });
    }

    std::string run(Duration faults, Duration peace) {
        at(50ms, [this, faults] { misfortune(faults); });
        run_until(faults);
        calm_ = true;
        cut_ = {};
        etcd_away_ = false;
        for (std::size_t i = 0; i < 3; ++i)
            if (!daemons_[i].core) start(i);
        const auto before = counter_;
        run_until(faults + peace);
        int leaders = 0;
        for (const auto& daemon : daemons_) leaders += daemon.leads ? 1 : 0;
        if (violation_.empty() && leaders != 1) fail(cat(leaders, " leaders in peace"));
        if (violation_.empty() && counter_ < before + 10) fail("the leader gets nothing done in peace");
        return violation_;
    }

    int election_count = 0;
    int large_batch_count = 0;

  private:
    struct Daemon {
        std::unique_ptr<EtcdCore> core;
        std::uint64_t life = 0;
        Duration clock{};  ///< its monotonic clock is off by this
        bool leads = false;
        bool paused = false;
        std::uint64_t sequence = 0;
        std::uint64_t kept = 0;
        std::int64_t counter = 0;
        Instant alarm = no_deadline;
    };
    struct Event {
        Duration when;
        std::uint64_t order;
        std::function<void()> happens;
        bool operator<(const Event& other) const { return std::pair(when, order) > std::pair(other.when, other.order); }
    };

    std::int64_t below(std::int64_t limit) {
        return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
    }
    void at(Duration after, std::function<void()> happens) {
        events_.push({now_ + after, ++order_, std::move(happens)});
    }
    void fail(std::string what) {
        if (violation_.empty()) violation_ = cat("after ", describe(now_), ": ", what);
    }
    [[nodiscard]] Instant etcd_time() const { return Instant(1000s) + now_; }
    [[nodiscard]] Instant time_of(const Daemon& daemon) const { return Instant(2000s) + now_ + daemon.clock; }

    void run_until(Duration end) {
        while (violation_.empty() && !events_.empty() && events_.top().when <= end) {
            const auto event = events_.top();
            events_.pop();
            now_ = event.when;
            event.happens();
            check();
        }
        now_ = end;
    }

    /// Who may speak as the leader: one at most.
    void check() {
        int speaking = 0;
        for (const auto& daemon : daemons_)
            if (daemon.core &&
                (plant_ == Plant::no_lease_limit ? daemon.leads : time_of(daemon) < daemon.core->leads_until()))
                ++speaking;
        if (speaking > 1) fail("two daemons may speak as the leader");
    }

    void start(std::size_t i) {
        auto& daemon = daemons_[i];
        ++daemon.life;
        daemon.leads = daemon.paused = false;
        EtcdConfig config;
        config.self = cat("host", i, ":29400");
        config.endpoint_count = 3;
        config.operations_max = 4;
        daemon.core = std::make_unique<EtcdCore>(config);
        carry_out(i, daemon.core->start(time_of(daemon)));
    }
    void kill(std::size_t i) {
        daemons_[i].core.reset();
        daemons_[i].leads = false;
        ++daemons_[i].life;
    }

    void carry_out(std::size_t i, EtcdCore::Outputs outputs) {
        auto& daemon = daemons_[i];
        for (auto& output : outputs) {
            if (const auto* ask = std::get_if<SendToEtcd>(&output)) send(i, *ask);
            if (const auto* lead = std::get_if<Lead>(&output)) begin(daemon, *lead);
            if (std::holds_alternative<StandBy>(output)) daemon.leads = false;
            if (const auto* kept = std::get_if<Kept>(&output)) {
                if (!daemon.leads || kept->sequence <= daemon.kept || kept->sequence > daemon.sequence)
                    fail(cat("step ", kept->sequence, " is kept after ", daemon.kept));
                daemon.kept = kept->sequence;
            }
        }
        arm(i);
    }

    /// All records of a step are there, or none.
    void begin(Daemon& daemon, const Lead& lead) {
        ++election_count;
        daemon.leads = true;
        daemon.sequence = daemon.kept = 0;
        daemon.counter = 0;
        std::map<std::string, std::string> state;
        for (const auto& record : lead.records) state[record.key] = record.value;
        if (state.contains("counter")) daemon.counter = std::stoll(state["counter"]);
        std::set<std::string> wide;
        for (int k = 0; k < 10; ++k) wide.insert(state[cat("wide", k)]);
        if (wide.size() > 1) fail("a step is there in parts");
        if (daemon.counter < promised_) fail(cat("what was kept is lost: ", daemon.counter, " of ", promised_));
    }

    /// The leaders' daily work: each step counts on from what it knows.
    void work() {
        at(Duration{(5 + below(100)) * 1'000'000}, [this] { work(); });
        for (std::size_t i = 0; i < 3; ++i) {
            auto& daemon = daemons_[i];
            if (!daemon.core || daemon.paused || !daemon.leads) continue;
            std::vector<Record> records{{"counter", std::to_string(++daemon.counter)}};
            if (below(10) == 0) {
                ++large_batch_count;
                for (int k = 0; k < 10; ++k) records.push_back({cat("wide", k), std::to_string(daemon.counter)});
            }
            counts_[{i, daemon.life, ++daemon.sequence}] = daemon.counter;
            carry_out(i, daemon.core->write(daemon.sequence, std::move(records), time_of(daemon)));
            if (daemon.kept > 0) {
                promised_ = std::max(promised_, counts_[{i, daemon.life, daemon.kept}]);
                counter_ = promised_;
            }
        }
    }

    Duration delay() { return Duration{calm_ || below(20) > 0 ? 100'000 + below(3'000'000) : below(4'000'000'000)}; }

    void send(std::size_t i, const SendToEtcd& ask) {
        const auto life = daemons_[i].life;
        auto request = ask.request;
        if (auto* write = std::get_if<Transaction>(&request)) {
            if (plant_ == Plant::no_fence && write->compare.size() == 2) write->compare.clear();
            if (plant_ == Plant::no_serial && write->compare.size() == 2) write->compare.pop_back();
        }
        auto answered = std::make_shared<bool>(false);
        const auto answer = [this, i, life, id = ask.id, answered](Result<EtcdAnswer> told) {
            auto& daemon = daemons_[i];
            if (std::exchange(*answered, true) || daemon.life != life || !daemon.core) return;
            if (daemon.paused) return at(10ms, [this, i, life, id, told] { late_answer(i, life, id, told); });
            carry_out(i, daemon.core->answered(id, told, time_of(daemon)));
        };
        at(ask.timeout, [answer] { answer(Error{Errc::timed_out, "no answer"}); });
        at(delay(), [this, i, request, answer] {
            if (cut_[i] || etcd_away_) return;
            const auto call = encode(request);
            const auto response = etcd_.call(call.path, call.body, etcd_time());
            if (!calm_ && below(50) == 0) return;
            at(delay(), [this, i, request, response, answer] {
                if (!cut_[i]) answer(decode_answer(request, response.status, response.body));
            });
        });
    }
    void late_answer(std::size_t i, std::uint64_t life, std::uint64_t id, const Result<EtcdAnswer>& told) {
        auto& daemon = daemons_[i];
        if (daemon.life != life || !daemon.core) return;
        if (daemon.paused) return at(10ms, [this, i, life, id, told] { late_answer(i, life, id, told); });
        carry_out(i, daemon.core->answered(id, told, time_of(daemon)));
    }

    void arm(std::size_t i) {
        auto& daemon = daemons_[i];
        if (!daemon.core) return;
        const auto deadline = daemon.core->deadline();
        if (deadline == no_deadline || deadline == daemon.alarm) return;
        daemon.alarm = deadline;
        const auto wait = std::max<Duration>(deadline - time_of(daemon), 0ns);
        at(wait, [this, i, life = daemon.life, deadline] { ring(i, life, deadline); });
    }
    void ring(std::size_t i, std::uint64_t life, Instant deadline) {
        auto& daemon = daemons_[i];
        if (daemon.life != life || !daemon.core || daemon.alarm != deadline) return;
        if (daemon.paused) return at(10ms, [this, i, life, deadline] { ring(i, life, deadline); });
        daemon.alarm = no_deadline;
        carry_out(i, daemon.core->tick(time_of(daemon)));
    }

    void misfortune(Duration until) {
        if (now_ >= until) return;
        at(Duration{(200 + below(2500)) * 1'000'000}, [this, until] { misfortune(until); });
        const auto i = static_cast<std::size_t>(below(3));
        const Duration for_a_while{(100 + below(5000)) * 1'000'000};
        switch (below(6)) {
            case 0: cut_[i] = true; return at(for_a_while, [this, i] { cut_[i] = false; });
            case 1:
                kill(i);
                return at(for_a_while, [this, i] {
                    if (!daemons_[i].core) start(i);
                });
            case 2: daemons_[i].paused = true; return at(for_a_while, [this, i] { daemons_[i].paused = false; });
            case 3:
                etcd_away_ = true;
                return at(for_a_while, [this] {
                    etcd_away_ = false;
                    etcd_.prolong_leases(etcd_time());
                });
            case 4:
                if (daemons_[i].core) carry_out(i, daemons_[i].core->resign(time_of(daemons_[i])));
                kill(i);
                return at(1ms, [this, i] {
                    if (!daemons_[i].core) start(i);
                });
            default: return;
        }
    }

    std::mt19937_64 random_;
    Plant plant_;
    test::SimulatedEtcd etcd_;
    Daemon daemons_[3];
    std::array<bool, 3> cut_{};
    bool etcd_away_ = false;
    bool calm_ = false;
    Duration now_{};
    std::uint64_t order_ = 0;
    std::priority_queue<Event> events_;
    std::set<std::int64_t> counted_;
    std::map<std::tuple<std::size_t, std::uint64_t, std::uint64_t>, std::int64_t> counts_;
    std::int64_t promised_ = 0;
    std::int64_t counter_ = 0;
    std::string violation_;
};

}  // namespace

TEST_CASE("one leads at a time, nothing that was kept is lost, no write of an old leader counts") {
    int elections = 0;
    int large_batches = 0;
    for (std::uint64_t seed = 1; seed <= seed_count; ++seed) {
        World world(seed);
        INFO("seed " << seed);
        REQUIRE(world.run(40s, 10s) == "");
        elections += world.election_count;
        large_batches += world.large_batch_count;
    }
    CHECK(elections > static_cast<int>(seed_count) * 3);
    CHECK(large_batches > static_cast<int>(seed_count) * 6);
}

TEST_CASE("the world finds writes without a fence, without a serial number, and a leader that forgets its lease") {
    for (const auto plant : {Plant::no_fence, Plant::no_serial, Plant::no_lease_limit}) {
        std::string found;
        for (std::uint64_t seed = 1; seed <= 300 && found.empty(); ++seed) found = World(seed, plant).run(40s, 10s);
        INFO("plant " << static_cast<int>(plant));
        CHECK_FALSE(found.empty());
    }
}

namespace {

/// One daemon's core and an etcd that answers at once.
class Talk {
  public:
    explicit Talk(EtcdConfig config, test::SimulatedEtcd* etcd = nullptr) : core(std::move(config)), etcd_(etcd) {
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
            } else if (auto* lead = std::get_if<Lead>(&output)) {
                ++led;
                records = std::move(lead->records);
            }
        }
    }
    void pass(Duration duration) {
        for (const auto end = now + duration; core.deadline() <= end;) {
            now = std::max(now, core.deadline());
            take(core.tick(now));
        }
        now += duration;
    }

    Instant now{1000s};
    EtcdCore core;
    std::vector<SendToEtcd> asked;
    std::vector<std::string> remarks;
    std::string leader;
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
