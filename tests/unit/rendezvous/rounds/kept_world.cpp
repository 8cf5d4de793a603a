#include "tests/unit/rendezvous/rounds/kept_world.h"

#include <algorithm>
#include <variant>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::test {

using namespace rendezvous;

namespace {

constexpr std::size_t seats = 5;
constexpr Duration lease = 1s;

Result<KeptState> state_of(const std::map<std::string, std::string>& kept) {
    std::vector<Record> records;
    for (const auto& [key, value] : kept) records.push_back({key, value});
    return decode_state(records);
}

/// What a step does, without the news for those who wait: these come at most once a second, and a daemon that is new
/// has not told them yet.
std::string spoken(const ServerStep& step) {
    std::string out;
    for (const auto& action : step.actions) {
        if (const auto* send = std::get_if<SendTo>(&action)) {
            const auto& message = send->message;
            if (std::holds_alternative<native::Gathering>(message) || std::holds_alternative<native::Parked>(message))
                continue;
            out += cat(native::name(message), " to");
            for (const auto to : send->connections) out += cat(' ', to);
            out += cat(": ");
            native::append_frame(out, message);
        } else if (const auto* closed = std::get_if<CloseConnection>(&action)) {
            out += cat("close ", closed->connection, ": ", closed->why);
        } else if (const auto* forgotten = std::get_if<JobForgotten>(&action)) {
            out += cat("forgotten ", forgotten->job);
        } else {
            out += "fresh store";
        }
        out += '\n';
    }
    return out;
}

}  // namespace

KeptWorld::KeptWorld(std::uint64_t seed, Damage damage) : random_(seed), damage_(damage), agents_(seats) {
    config_.keep_records = true;
    config_.end_linger = 1000s;
    terms_.nodes_max = 1 + below(4);
    terms_.nodes_min = 1 + below(terms_.nodes_max);
    terms_.spares = below(2);
    terms_.restarts_max = below(5);
    terms_.stalled_restarts_max = below(3);
    terms_.fixed_world = below(5) == 0;
    // Their ends are counted from a daemon's start, and would be the one difference.
    terms_.last_call_ms = 0;
    terms_.lease_ms = 1'000;
    terms_.lost_timeout_ms = 1'000'000;
    for (auto& server : servers_) server = std::make_unique<Server>(config_, now_);
}

std::string KeptWorld::run(int event_count) {
    for (int i = 0; i < event_count && difference_.empty(); ++i) {
        happen();
        if (below(3) == 0 && !anybody_away()) crash();
    }
    return difference_;
}

void KeptWorld::happen() {
    auto& agent = agents_[below(seats)];
    switch (below(8)) {
        case 0: return pass(std::chrono::milliseconds(10 + below(400)));
        case 1:
            if (agent.phase == Phase::absent) return appear(agent);
            break;
        case 2:
            if (agent.phase == Phase::draining) return drain(agent);
            break;
        case 3:
            if (below(6) == 0 && agent.phase != Phase::absent) return die(agent);
            break;
        default: break;
    }
    if (agent.phase == Phase::absent) return appear(agent);
    speak(agent);
}

void KeptWorld::appear(Agent& agent) {
    agent = Agent{};
    const auto seat = static_cast<std::int32_t>(&agent - agents_.data());
    agent.node = {cat("n", seat), 100 + seat, next_incarnation_++};
    agent.join.terms = terms_;
    agent.join.slots = 1 + below(3);
    agent.join.role = below(4) == 0 ? "reader" : "default";
    agent.join.node_rank = terms_.fixed_world ? seat % static_cast<std::int32_t>(terms_.nodes_max) : -1;
    agent.join.entry = "train.py";
    agent.join.arguments = cat("--half=", seat % 2);
    agent.join.arguments_hash = 1 + static_cast<std::uint64_t>(seat % 2);
    agent.join.unhealthy = below(6) == 0 ? "hot" : "";
    if (below(2) == 0) agent.join.addresses = {cat("10.0.0.", seat)};
    agent.phase = Phase::waiting;
    connect(agent);
    step(Received{agent.connection, agent.join});
}

void KeptWorld::connect(Agent& agent) {
    agent.connection = next_connection_++;
    step(ConnectionAccepted{agent.connection, cat("10.1.0.", 1 + below(3))});
    native::Hello hello;
    hello.job = "job";
    hello.node = agent.node;
    hello.connection = ++agent.connection_number;
    hello.versions = {{"muster", below(2) == 0 ? "1.0" : "1.1"}};
    step(Received{agent.connection, hello});
}

/// As client_core.cpp's introduce().
void KeptWorld::say_where(Agent& agent) {
    connect(agent);
    if (agent.phase == Phase::running || agent.phase == Phase::through) {
        const native::Resume resume{agent.assigned.round, agent.phase == Phase::through, agent.join, agent.assigned};
        step(Received{agent.connection, resume});
    } else if (agent.phase == Phase::draining) {
        step(Received{agent.connection, native::Resume{agent.assigned.round, false, agent.join, agent.assigned}});
    } else if (agent.phase == Phase::waiting) {
        step(Received{agent.connection, agent.join});
    } else {
        step(Received{agent.connection, native::EndAcknowledged{}});
    }
}

void KeptWorld::speak(Agent& agent) {
    if (agent.connection == 0) return say_where(agent);
    const auto round = agent.assigned.round;
    if (agent.phase == Phase::over) {
        step(Received{agent.connection, native::EndAcknowledged{}});
        agent = Agent{};
    } else if (agent.phase == Phase::running && below(3) == 0) {
        Failure failure;
        failure.kind = static_cast<FailureKind>(1 + below(3));
        failure.host = agent.node.host;
        failure.rank = static_cast<std::int32_t>(agent.assigned.rank_base);
        failure.pid = agent.node.pid;
        failure.end = Exited{static_cast<std::int32_t>(below(20) == 0 ? 76 : 1)};
        failure.at_ns = (now_ - 20ms).time_since_epoch().count();
        agent.phase = Phase::draining;
        step(Received{agent.connection, native::WorkersFailed{round, {failure}}});
    } else if (agent.phase == Phase::running && below(2) == 0) {
        agent.phase = Phase::through;
        step(Received{agent.connection, native::WorkersSucceeded{round}});
    } else if (below(12) == 0) {
        step(Received{agent.connection, native::Leave{"stopped"}});
        agent = Agent{};
    } else if (below(12) == 0) {
        agent.silent = true;
    }
}

void KeptWorld::drain(Agent& agent) {
    if (agent.connection == 0) return say_where(agent);
    native::RoundReport report;
    report.round = agent.assigned.round;
    report.stopped_count = below(3);
    report.checkpoint_step = static_cast<std::int64_t>(below(5));
    if (below(3) == 0) {
        WorkerActivity idle;
        idle.rank = static_cast<std::int32_t>(agent.assigned.rank_base);
        idle.inside = below(2) == 0;
        idle.place = cat("step (train.py:", below(3), ")");
        report.activities.push_back(idle);
    }
    step(Received{agent.connection, report});
    if (agent.phase != Phase::draining) return;
    agent.join.last_round = agent.assigned.round;
    agent.phase = Phase::waiting;
    agent.join.unhealthy = below(6) == 0 ? "hot" : "";
    if (below(3) > 0) step(Received{agent.connection, agent.join});
}

void KeptWorld::die(Agent& agent) {
    const auto node = agent.node;
    const auto old = agent.connection;
    agent = Agent{};
    if (old != 0) step(ConnectionEnded{old, "reset"});
    if (below(4) == 0) return;  // so did its guardian
    const auto connection = next_connection_++;
    step(ConnectionAccepted{connection, "10.1.0.9"});
    native::Hello hello;
    hello.job = "job";
    hello.node = node;
    hello.connection = 1'000;
    step(Received{connection, hello});
    step(Received{connection, native::AgentDied{"killed"}});
}

void KeptWorld::pass(Duration duration) {
    const auto until = now_ + duration;
    while (difference_.empty()) {
        // Not too late, or a daemon takes its own silence for its agents'. A little late, because those who are due
        // within 5 ms are judged in one look, and the two daemons may have looked at different times.
        const auto next = std::min(servers_[0]->deadline(), servers_[1]->deadline());
        if (next >= until - 10ms) break;
        now_ = std::max(now_, next) + 10ms;
        step(Elapsed{});
    }
    now_ = until;
    for (auto& agent : agents_)
        if (agent.connection != 0 && !agent.silent) step(Received{agent.connection, native::Ping{}});
}

/// Nothing tells a silent member's last word to the next daemon, so the two would differ by its lease.
bool KeptWorld::anybody_away() const {
    const auto status = servers_[0]->status_json(now_);
    const auto alive = std::ranges::any_of(agents_, [](const Agent& agent) { return agent.silent; });
    return alive || status.find("\"connected\":false") != std::string::npos;
}

void KeptWorld::crash() {
    ++crash_count_;
    for (auto& agent : agents_)
        if (agent.connection != 0) servers_[0]->step(ConnectionEnded{agent.connection, "reset"}, now_);
    auto state = state_of(kept_[1]);
    if (!state) {
        difference_ = state.error().context;
        return;
    }
    servers_[1] = std::make_unique<Server>(config_, now_, *std::move(state));
    auto back = std::vector<Agent*>{};
    for (auto& agent : agents_) {
        agent.connection = 0;
        if (agent.phase != Phase::absent) back.push_back(&agent);
    }
    std::shuffle(back.begin(), back.end(), random_);
    for (auto* agent : back) say_where(*agent);
}

void KeptWorld::step(const ServerEvent& event) {
    if (!difference_.empty()) return;
    std::string said[2];
    ServerStep done[2];
    for (std::size_t i : {0, 1}) {
        done[i] = servers_[i]->step(event, now_);
        said[i] = spoken(done[i]);
        for (const auto& record : done[i].records) {
            const bool damaged = i == 1 && damage_ != nullptr;
            const auto value = damaged ? damage_(record) : record.value;
            if (value.empty())
                kept_[i].erase(record.key);
            else
                kept_[i][record.key] = value;
        }
    }
    for (const auto& server : servers_)
        if (!server->indexes_agree()) difference_ = "an index differs from the members\n";
    if (said[0] != said[1]) difference_ = cat("said:\n", said[0], "and, restarted:\n", said[1]);
    if (damage_ == nullptr && kept_[0] != kept_[1]) {
        difference_ += "kept:\n";
        for (const auto& [key, value] : kept_[0])
            if (const auto other = kept_[1].find(key); other == kept_[1].end() || other->second != value)
                difference_ += cat(key, " differs or is missing after a restart\n");
        for (const auto& [key, value] : kept_[1])
            if (!kept_[0].contains(key)) difference_ += cat(key, " is there only after a restart\n");
    }
    for (const auto& action : done[0].actions) {
        if (const auto* send = std::get_if<SendTo>(&action))
            for (const auto to : send->connections) hear(send->message, to);
        if (const auto* closed = std::get_if<CloseConnection>(&action)) {
            for (auto& agent : agents_)
                if (agent.connection == closed->connection) agent.connection = 0;
            step(ConnectionEnded{closed->connection, closed->why});
        }
    }
}

void KeptWorld::hear(const native::Message& message, ConnectionId connection) {
    const auto found = std::ranges::find(agents_, connection, &Agent::connection);
    if (found == agents_.end() || connection == 0) return;
    if (const auto* assigned = std::get_if<native::Assigned>(&message)) {
        found->assigned = *assigned;
        found->phase = Phase::running;
    } else if (const auto* ended = std::get_if<native::RoundEnded>(&message)) {
        if (ended->round == found->assigned.round && found->phase != Phase::waiting) found->phase = Phase::draining;
    } else if (std::holds_alternative<native::JobEnded>(message)) {
        found->phase = Phase::over;
    } else if (std::holds_alternative<native::Refused>(message)) {
        *found = Agent{};
    }
}

}  // namespace muster::test
