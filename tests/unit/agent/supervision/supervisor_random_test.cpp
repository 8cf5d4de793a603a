// Random lives of an agent against a host and a daemon that keep their contracts. Safety after every step; then the
// faults stop and the agent must come to its end.
#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

/// Plays host and daemon. What the supervisor orders becomes the set of events that may come next.
class Life {
  public:
    explicit Life(std::uint32_t seed) : random_(seed), supervisor_(config(seed)) {}

    void run(int steps) {
        deliver(Begin{});
        for (int i = 0; i < steps && !finished_; ++i) anything();
        // Liveness: whatever happened, two stop requests end the agent once the host has answered.
        if (!finished_) deliver(StopRequested{SIGTERM});
        if (!finished_) deliver(StopRequested{SIGTERM});
        for (int i = 0; i < 10 && !finished_; ++i) answer_kill();
        REQUIRE(finished_);
        deliver(StopRequested{SIGTERM});
        deliver(Elapsed{});
    }
    std::set<std::string> seen;  // kinds of action

  private:
    /// Every second life keeps its workers.
    static SupervisorConfig config(std::uint32_t seed) {
        auto config = Story::config();
        config.keep_max = seed % 2 == 0 ? keep_max : 0;
        config.checks_health = seed % 3 == 0;
        config.health_interval = 10s;
        return config;
    }
    static constexpr std::uint32_t keep_max = 2;

    struct Process {
        bool answered = false;
        bool ended = true;
        bool group = false;  ///< its leader has ended and left something
        std::uint32_t again_count = 0;
        bool group_taken = false;  ///< the group is gone, which the supervisor may not have heard yet
        bool asked = false;        ///< it got Hold, and has not answered
        bool held = false;
        bool kept = false;      ///< KillTree leaves it alone
        bool outlived = false;  ///< it was held when its round was drained
    };

    bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

    void anything() {
        now_ += std::chrono::milliseconds(random_() % 3000);
        switch (random_() % 21) {
            case 0: return deliver(store_opened_if_asked());
            case 1:
            case 2:
            case 3: return assign();
            case 4: return deliver(DaemonMessage{native::RoundEnded{round_, {}, chance(20), "x"}});
            case 5:
            case 6: return worker_speaks(chance(50) ? Exited{0} : Exited{1});
            case 7: return worker_speaks(Signaled{chance(50) ? SIGSEGV : SIGTERM, false});
            case 8: return answer_kill();
            case 9: return chance(30) ? deliver(ClientFenced{"silent"}) : deliver(Elapsed{});
            case 10: return chance(5) ? deliver(ClientLost{"gone"}) : deliver(Elapsed{});
            case 11: return chance(5) ? deliver(StopRequested{SIGINT}) : deliver(Elapsed{});
            case 12: return chance(5) ? deliver(DaemonMessage{native::JobEnded{}}) : deliver(Elapsed{});
            case 13: return group_empties();
            case 14: return chance(5) ? guardian_replaced() : deliver(Elapsed{});
            case 16:
            case 17:
            case 18: return keeps();
            case 15:
                return chance(50) ? deliver(DaemonMessage{native::NoticeGiven{"x"}})
                                  : deliver(PreemptionAnnounced{SIGUSR1});
            case 19: return health_checked();
            default: return chance(5) ? deliver(DaemonMessage{native::Drain{"x"}}) : deliver(Elapsed{});
        }
    }

    SupervisorEvent store_opened_if_asked() {
        if (!open_asked_) return Elapsed{};
        open_asked_ = false;
        return StoreOpened{RoundPorts{4000, 4000}};
    }
    void health_checked() {
        using Found = HealthChecked::Health;
        if (!std::exchange(check_asked_, false)) return deliver(Elapsed{});
        deliver(HealthChecked{chance(50) ? Found::healthy : chance(80) ? Found::sick : Found::unknown, "hot"});
    }
    void assign() {
        if (check_asked_ && !joined_) return health_checked();
        if (open_asked_) return deliver(store_opened_if_asked());
        native::Assigned assigned;
        assigned.round = round_ + (chance(70) ? 1 : 0);
        if (joined_) round_ = std::max(round_, assigned.round);
        deliver(DaemonMessage{assigned});
    }
    void worker_speaks(WorkerEnd end) {
        const auto local_rank = static_cast<std::uint32_t>(random_() % 2);
        auto& process = processes_[local_rank];
        if (process.ended) return deliver(Elapsed{});
        if (!process.answered && chance(80)) {
            process.answered = true;
            return deliver(HostEvent{WorkerStarted{local_rank, 100}, {}});
        }
        process.ended = true;
        const Instant at = now_ - std::chrono::milliseconds(random_() % 2000);
        WorkerEnded ended{.local_rank = local_rank, .pid = 100, .end = std::move(end), .at = at};
        process.group = ended.group_left = chance(20);
        deliver(HostEvent{std::move(ended), {}});
    }
    void keeps() {
        const auto local_rank = static_cast<std::uint32_t>(random_() % 2);
        auto& process = processes_[local_rank];
        if (process.ended) return deliver(Elapsed{});
        if (process.asked && chance(80)) {
            process.asked = false;
            process.held = true;
            return deliver(WorkerKeeps{local_rank, KeepWord::held});
        }
        deliver(WorkerKeeps{local_rank, chance(80) ? KeepWord::can : KeepWord::cannot});
    }
    void group_empties() {
        const auto local_rank = static_cast<std::uint32_t>(random_() % 2);
        if (!std::exchange(processes_[local_rank].group, false)) return deliver(Elapsed{});
        processes_[local_rank].group_taken = true;  // the supervisor may hold the end before it, and then this too
        deliver(HostEvent{GroupEmpty{local_rank}, {}});
    }
    void guardian_replaced() {
        guardian_dies_ = true;  // the supervisor hears of one end after the other, and may judge held ones meanwhile
        for (std::uint32_t local_rank = 0; local_rank < 2 && !finished_; ++local_rank) {
            auto& process = processes_[local_rank];
            process.group_taken = std::exchange(process.group, false);
            if (std::exchange(process.ended, true)) continue;
            WorkerEnded ended{.local_rank = local_rank, .pid = 100, .end = Signaled{SIGKILL}, .at = now_};
            ended.orphaned = true;
            deliver(HostEvent{std::move(ended), {}});
        }
        if (!finished_) deliver(HostEvent{GuardianLost{"killed", now_, true}, {}});
        processes_[0].group_taken = processes_[1].group_taken = false;
        guardian_dies_ = false;
    }
    void answer_kill() {
        if (std::exchange(answered_, false)) return deliver(HostEvent{TreeEmpty{}, {}});
        if (!kill_asked_) return deliver(Elapsed{});
        for (std::uint32_t local_rank = 0; local_rank < 2 && !finished_; ++local_rank) {
            auto& process = processes_[local_rank];
            if (process.ended || process.kept) continue;
            process.ended = true;
            deliver(
                HostEvent{WorkerEnded{.local_rank = local_rank, .pid = 100, .end = Signaled{SIGKILL}, .at = now_}, {}});
        }
        kill_asked_ = false;
        tree_ = false;
        for (auto& process : processes_) process.outlived = !process.ended;
        // The answer may be under way for a while. A further KillTree makes it void.
        answered_ = !finished_ && !kill_asked_;
        if (answered_ && chance(70)) answer_kill();
    }

    void deliver(const SupervisorEvent& event) {
        const auto step = supervisor_.step(event, now_);
        if (finished_) CHECK(step.actions.empty());
        for (const auto& action : step.actions) carry_out(action);
        const auto left = supervisor_.deadline();
        CHECK((left == no_deadline || left <= now_ + 30s));
    }

    /// The host has not answered KillTree in time, nor KillGuardian after it.
    bool given_up() const { return guardian_killed_ && now_ - killed_at_ >= Story::config().kill_wait; }

    void begin(const StartWorkers& start) {
        REQUIRE(joined_);
        REQUIRE_FALSE(tree_);
        REQUIRE(started_rounds_.insert(start.assignment.round).second);
        joined_ = check_asked_ = false;
        tree_ = true;
        for (std::uint32_t local_rank = 0; local_rank < 2; ++local_rank) {
            auto& process = processes_[local_rank];
            const bool resumed = std::find(start.kept.begin(), start.kept.end(), local_rank) != start.kept.end();
            REQUIRE(process.ended != resumed);
            REQUIRE((!resumed || (process.held && process.kept)));
            process = Process{.answered = resumed, .ended = false, .kept = resumed};
        }
    }
    /// Nor one for held workers.
    bool outlives_kill() const {
        return (kill_asked_ || answered_) && !tree_ && now_ - killed_at_ >= Story::config().kill_wait;
    }

    void carry_out(const SupervisorAction& action) {
        REQUIRE_FALSE(finished_);
        const auto text = show(action);
        seen.insert(text.substr(0, text.find('(')));
        if (std::holds_alternative<OpenStore>(action)) {
            REQUIRE_FALSE(store_);
            store_ = open_asked_ = true;
        } else if (std::holds_alternative<CloseStore>(action)) {
            REQUIRE(store_);
            store_ = open_asked_ = false;
        } else if (std::holds_alternative<CheckHealth>(action)) {
            REQUIRE(store_);
            REQUIRE_FALSE(tree_);
            REQUIRE_FALSE(check_asked_);
            check_asked_ = true;
        } else if (std::holds_alternative<SendJoin>(action)) {
            REQUIRE(store_);
            REQUIRE_FALSE(tree_);  // S4
            for (const auto& process : processes_) REQUIRE((process.ended || (process.held && process.kept)));
            joined_ = true;
        } else if (const auto* start = std::get_if<StartWorkers>(&action)) {
            begin(*start);
        } else if (const auto* keep = std::get_if<KeepWorkers>(&action)) {
            for (auto& process : processes_) process.kept = false;
            for (const auto local_rank : keep->local_ranks) {
                REQUIRE((!processes_[local_rank].ended || guardian_dies_));
                processes_[local_rank].kept = true;
            }
        } else if (std::holds_alternative<SendHold>(action)) {
            REQUIRE(tree_);
            for (auto& process : processes_) process.asked = process.kept;
        } else if (const auto* again = std::get_if<StartAgain>(&action)) {
            // One process a local rank, and none beside the remains of another; never while the round ends.
            auto& process = processes_[again->local_rank];
            REQUIRE(tree_);
            REQUIRE_FALSE(kill_asked_);
            REQUIRE(process.ended);
            REQUIRE_FALSE(process.group);
            REQUIRE(again->count == process.again_count + 1);
            REQUIRE(again->count <= keep_max);
            process = Process{.answered = false, .ended = false, .again_count = again->count};
        } else if (std::holds_alternative<SignalWorkers>(action) || std::holds_alternative<NotifyWorkers>(action)) {
            REQUIRE((tree_ || processes_[0].outlived || processes_[1].outlived));
            REQUIRE((!processes_[0].ended || !processes_[1].ended || guardian_dies_));
        } else if (const auto* group = std::get_if<SignalGroup>(&action)) {
            const auto& process = processes_[group->local_rank];
            REQUIRE((tree_ || process.outlived));
            REQUIRE((process.ended ? process.group || process.group_taken : process.asked || process.held));
        } else if (std::holds_alternative<KillTree>(action)) {
            REQUIRE((tree_ || processes_[0].outlived || processes_[1].outlived));
            kill_asked_ = true;
            answered_ = false;
            guardian_killed_ = false;
            killed_at_ = now_;
        } else if (std::holds_alternative<KillGuardian>(action)) {
            REQUIRE((kill_asked_ || answered_));
            REQUIRE_FALSE(guardian_killed_);
            REQUIRE(now_ - killed_at_ >= Story::config().kill_wait);
            guardian_killed_ = true;
            killed_at_ = now_;
        } else if (std::holds_alternative<ReportRound>(action) || std::holds_alternative<AcknowledgeEnd>(action)) {
            REQUIRE((!tree_ || given_up()));
        } else if (std::holds_alternative<Finish>(action)) {
            REQUIRE_FALSE(store_);
            REQUIRE(((!tree_ && processes_[0].ended && processes_[1].ended) || given_up() || outlives_kill()));
            finished_ = true;
        }
    }

    std::mt19937 random_;
    Supervisor supervisor_;
    Instant now_ = Instant(1h);
    Instant killed_at_ = Instant(0s);
    Round round_ = 0;
    Process processes_[2];
    std::set<Round> started_rounds_;
    bool store_ = false, open_asked_ = false, joined_ = false, tree_ = false, kill_asked_ = false, finished_ = false;
    bool guardian_killed_ = false, guardian_dies_ = false, answered_ = false;
    bool check_asked_ = false;
};

}  // namespace

TEST_CASE("random lives keep every rule, and end") {
    std::set<std::string> seen;
    for (std::uint32_t seed = 1; seed <= 5000; ++seed) {
        INFO("seed " << seed);
        Life life(seed);
        life.run(200);
        seen.insert(life.seen.begin(), life.seen.end());
    }
    // All kinds of action have happened, or the lives were too tame to prove anything.
    CHECK(seen.size() == std::variant_size_v<SupervisorAction>);
}

TEST_CASE("a stop at any step of a life ends the agent, and each start gets its end") {
    // One life: join, start, a failure, the drain, the next round, success, the job's end. Stopped before each step.
    using Act = std::string (*)(Story&);
    const std::vector<Act> life = {
        [](Story& s) { return s.begin(); },
        [](Story& s) { return s.store_opened(); },
        [](Story& s) { return s.assigned(0); },
        [](Story& s) { return s.started(0); },
        [](Story& s) { return s.started(1); },
        [](Story& s) { return s.ended(1, Exited{1}); },
        [](Story& s) { return s.round_ended(0); },
        [](Story& s) {
            return s.ended(0, Signaled{SIGTERM, false});
        },
        [](Story& s) { return s.tree_empty(); },
        [](Story& s) { return s.store_opened(); },
        [](Story& s) { return s.assigned(1); },
        [](Story& s) { return s.ended(0, Exited{0}); },
        [](Story& s) { return s.ended(1, Exited{0}); },
        [](Story& s) { return s.job_succeeded(); },
    };
    for (std::size_t stop_before = 0; stop_before <= life.size(); ++stop_before) {
        INFO("stopped before step " << stop_before);
        Story story;
        for (std::size_t i = 0; i < stop_before; ++i) life[i](story);
        story.stop(SIGTERM);
        story.stop(SIGTERM);
        const bool second_round = stop_before > 10;
        for (std::uint32_t rank : {0U, 1U}) {
            const std::size_t started = second_round ? 10 : 2;
            const std::size_t ended = second_round ? 11 + rank : (rank == 1 ? 5 : 7);
            if (stop_before > started && stop_before <= ended) story.ended(rank, Signaled{SIGKILL, false});
        }
        story.tree_empty();
        CHECK(story.phase() == Phase::done);
    }
}
