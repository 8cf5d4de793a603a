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
