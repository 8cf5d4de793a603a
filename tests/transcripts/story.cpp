#include "tests/transcripts/story.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job_record.h"

namespace muster::test {

namespace {

using namespace rendezvous;

Duration duration_of(std::string_view text) {
    std::int64_t number = 0;
    const auto unit = text.find_first_not_of("0123456789");
    MUSTER_CHECK(unit != std::string_view::npos && parse_number(text.substr(0, unit), number), text);
    const auto name = text.substr(unit);
    if (name == "us") return std::chrono::microseconds(number);
    if (name == "ms") return std::chrono::milliseconds(number);
    MUSTER_CHECK(name == "s", text);
    return std::chrono::seconds(number);
}

std::uint32_t ms_of(std::string_view text) {
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(duration_of(text)).count());
}

template <class Number>
void take(const std::map<std::string, std::string>& words, const char* key, Number& value) {
    const auto found = words.find(key);
    if (found != words.end()) MUSTER_CHECK(parse_number(found->second, value), key, found->second);
}

std::int64_t ns(Instant at) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace

Story::Story(std::string_view terms) {
    run(cat("terms ", terms));
}

std::string Story::tell(std::string_view lines) {
    out_.clear();
    for (const auto piece : split(lines, '\n')) {
        const auto text = trim(piece);
        if (text.empty()) {
            if (!out_.empty() && !out_.ends_with("\n\n")) out_ += "\n";
            continue;
        }
        out_ += cat(text, "\n");
        if (!text.starts_with('#')) run(text);
    }
    while (out_.ends_with("\n\n")) out_.pop_back();
    return out_;
}

std::string Story::answers(std::string_view lines) {
    out_.clear();
    for (const auto piece : split(lines, '\n')) {
        const auto text = trim(piece);
        if (!text.empty() && !text.starts_with('#')) run(text);
    }
    return "\n" + out_;
}

void Story::run(std::string_view text) {
    std::vector<std::string> pieces;
    for (const auto piece : split(text, ' '))
        if (!piece.empty()) pieces.emplace_back(piece);
    const auto verb = pieces.at(0);
    Words words;
    for (std::size_t i = 1; i < pieces.size(); ++i) {
        const auto equals = pieces[i].find('=');
        words[pieces[i].substr(0, equals)] = equals == std::string::npos ? "" : pieces[i].substr(equals + 1);
    }
    if (verb == "terms") return set_terms(words);
    if (verb == "advance") return advance(duration_of(pieces.at(1)));
    if (verb == "torchrun") return step(rendezvous::TorchrunConnected{"job", std::string(pieces.at(1))});
    if (verb == "restart") return restart(pieces.size() > 1 ? duration_of(pieces[1]) : 0ms);
    if (verb == "show") return show(pieces.at(1));
    if (verb == "stall") {
        now_ += duration_of(pieces.at(1));
        for (auto& [job, replay] : replays_) replay.stand_still();
        // What waited in its sockets is read first, each in a step of its own.
        for (int accepted = 0; accepted < 20; ++accepted) step(ConnectionAccepted{next_connection_++, "10.0.0.2"});
        return step(Elapsed{});
    }
    if (verb == "hold" || verb == "free") {
        is_held_ = verb == "hold";
        return is_held_ ? step(DecisionsHeld{}) : step(DecisionsFreed{});
    }
    const bool known = run_agent(verb, puppet(pieces.at(1)), words);
    MUSTER_CHECK(known, text);
}

void Story::set_terms(const Words& words) {
    take(words, "min", terms_.nodes_min);
    take(words, "max", terms_.nodes_max);
    take(words, "spares", terms_.spares);
    take(words, "restarts", terms_.restarts_max);
    take(words, "stalled", terms_.stalled_restarts_max);
    take(words, "node_failures", terms_.node_failures_max);
    take(words, "of_rounds", terms_.node_failures_of);
    if (words.contains("window")) terms_.restarts_window_ms = ms_of(words.at("window"));
    terms_.restart_early_failures = terms_.restart_early_failures || words.contains("restart_early");
    if (words.contains("last_call")) terms_.last_call_ms = ms_of(words.at("last_call"));
    if (words.contains("lease")) terms_.lease_ms = ms_of(words.at("lease"));
    if (words.contains("lost")) terms_.lost_timeout_ms = ms_of(words.at("lost"));
    terms_.fixed_world = terms_.fixed_world || words.contains("fixed");
    if (words.contains("quiet")) config_.start_hold = StartHold::until_full;
    if (words.contains("quiet_always")) config_.start_hold = StartHold::always;
    config_.keep_records = words.contains("kept");
    if (config_.keep_records) kept_[complete_record().key] = complete_record().value;
    config_.allow_faults = words.contains("allow_faults");
    if (words.contains("embedded")) config_.embedded_for = "job";
    take(words, "beats", config_.heartbeats_per_second);
    take(words, "fan_out", config_.fan_out);
    server_ = std::make_unique<Server>(config_, now_);
}

bool Story::run_agent(const std::string& verb, Puppet& agent, const Words& words) {
    if (verb == "join")
        join(agent, words);
    else if (verb == "fail")
        fail(agent, words);
    else if (verb == "twin")
        twin(agent);
    else if (verb == "reconnect")
        connect(agent);
    else if (verb == "close")
        close(agent);
    else if (verb == "died")
        died(agent);
    else if (verb == "lose")
        agent.assigned = {};
    else if (verb == "silence")
        agent.silent = true;
    else if (verb == "speak")
        agent.silent = false;
    else if (verb == "seen")
        seen(agent, words);
    else if (verb == "succeed")
        hear(agent, native::WorkersSucceeded{agent.assigned.round});
    else if (verb == "leave")
        hear(agent, native::Leave{"stopped by SIGTERM"});
    else if (verb == "drain")
        hear(agent, native::Command{7, native::CommandVerb::drain_node, words.at("node"), "maintenance"});
    else if (verb == "fault")
        fault(agent, words);
    else if (verb == "carried_out")
        hear(agent, native::FaultAnswer{static_cast<std::uint32_t>(std::stoul(words.at("number"))),
                                        !words.contains("no"), "said"});
    else if (verb == "notify")
        hear(agent, native::Command{8, native::CommandVerb::notify_job, "", "SIGUSR1 to gpu07"});
    else if (verb == "ack")
        hear(agent, native::EndAcknowledged{});
    else if (verb == "report" || verb == "rejoin") {
        native::RoundReport report;
        report.round = agent.assigned.round;
        take(words, "stopped", report.stopped_count);
        take(words, "checkpoint", report.checkpoint_step);
        hear(agent, report);
        if (verb == "rejoin") join(agent, words);
    } else if (verb == "kill") {
        close(agent);
        died(agent);
    } else if (verb == "resume") {
        auto& told = agent.assigned;
        if (words.contains("round") && agent.connection_number == 0) agent.join.terms = terms_;
        take(words, "round", told.round);
        take(words, "of", told.group_world_size);
        take(words, "group", told.group_rank);
        take(words, "restarts", told.restart_count);
        connect(agent);
        const auto grace_ms = words.contains("grace") ? ms_of(words.at("grace")) : 30'000;
        hear(agent, native::Resume{agent.assigned.round, words.contains("done"), agent.join, agent.assigned, grace_ms});
    } else {
        return false;
    }
    return true;
}

Story::Puppet& Story::puppet(const std::string& name) {
    const auto [at, added] = puppets_.try_emplace(name);
    auto& agent = at->second;
    if (added) {
        agent.name = name;
        agent.node = {name, static_cast<std::int32_t>(100 + puppets_.size()), 1000 + puppets_.size()};
        agent.join.addresses = {cat(name, ".net")};
        agent.join.store_port = static_cast<std::uint16_t>(5000 + puppets_.size());
        agent.join.peer_port = static_cast<std::uint16_t>(6000 + puppets_.size());
    }
    return agent;
}

void Story::connect(Puppet& agent) {
    agent.connection = next_connection_++;
    names_[agent.connection] = agent.name;
    step(ConnectionAccepted{agent.connection, "10.0.0.1", agent.proven ? "job" : ""});
    native::Hello hello;
    hello.job = "job";
    hello.node = agent.node;
    hello.connection = ++agent.connection_number;
    if (!agent.version.empty()) hello.versions = {{"muster", agent.version}};
    step(Received{agent.connection, hello});
    agent.next_ping = now_ + std::chrono::milliseconds(terms_.lease_ms) / 5;
}

void Story::join(Puppet& agent, const Words& words) {
    agent.join.terms = terms_;
    auto& terms = agent.join.terms;
    take(words, "min", terms.nodes_min);
    take(words, "max", terms.nodes_max);
    take(words, "restarts", terms.restarts_max);
    take(words, "slots", agent.join.slots);
    take(words, "rank", agent.join.node_rank);
    take(words, "queued", agent.join.queued_ms);
    take(words, "pid", agent.node.pid);
    if (words.contains("host")) agent.node.host = words.at("host");
    if (words.contains("role")) agent.join.role = words.at("role");
    if (words.contains("entry")) agent.join.entry = words.at("entry");
    if (words.contains("arguments")) agent.join.arguments = words.at("arguments");
    if (words.contains("arguments")) agent.join.arguments_hash = std::hash<std::string>{}(agent.join.arguments);
    if (words.contains("expects")) agent.join.expected_hosts = words.at("expects");
    if (words.contains("version")) agent.version = words.at("version");
    agent.join.hosts_endpoint = words.contains("hosts");
    agent.join.unhealthy = words.contains("sick") ? words.at("sick") : "";
    agent.join.last_round = agent.assigned.round;
    take(words, "last_round", agent.join.last_round);
    agent.proven = agent.proven || words.contains("proven");
    if (agent.connection == 0) connect(agent);
    hear(agent, agent.join);
}

/// All of its workers were busy, after their 41st operation; overdue: idle since then; waiting: inside the 42nd.
void Story::seen(Puppet& agent, const Words& words) {
    native::WorkersSeen seen{agent.assigned.round, {}};
    take(words, "round", seen.round);
    seen.final = words.contains("final");
    for (const auto& [word, section] : {std::pair{"loading", "checkpoint"}, std::pair{"evaluating", "evaluation"}})
        if (words.contains(word)) section_time(seen.sections, section) = Duration(duration_of(words.at(word))).count();
    if (words.contains("median")) {
        seen.step_times.resize(step_time_bucket_count);
        const auto bucket = std::ranges::lower_bound(step_time_bounds, duration_of(words.at("median")));
        seen.step_times[static_cast<std::size_t>(bucket - step_time_bounds.begin())].count = 100;
    }
    if (words.contains("stepped")) seen.since_step_ns = Duration(duration_of(words.at("stepped"))).count();
    take(words, "memory", seen.checkpoints.memory);
    take(words, "shared", seen.checkpoints.shared);
    if (words.contains("gpu")) take(words, "gpu", seen.gpus.emplace_back().percent);
    auto base = agent.assigned.rank_base;
    take(words, "base", base);
    for (std::uint32_t i = 0; i < agent.join.slots; ++i)
        seen.workers.push_back(
            {.at = {static_cast<std::int32_t>(base + i), agent.node.pid + 1 + static_cast<std::int32_t>(i), 0,
                    "running", false, "all_reduce 41 of world", ""}});
    for (auto& worker : seen.workers) {
        take(words, "step", worker.step);
        take(words, "first", worker.tally.first_step);
        take(words, "committed", worker.tally.checkpoint_step);
        if (words.contains("overdue")) {
            worker.pace = native::WorkerPace::overdue;
            worker.at.idle_ms = 12'000;
            worker.at.state = "asleep";
        }
        if (!words.contains("waiting")) continue;
        worker.pace = native::WorkerPace::waiting;
        worker.at.inside = true;
        worker.at.operation = "all_reduce 42 of world";
    }
    if (!seen.final)
        (words.contains("waiting")   ? seen.counts.waiting
         : words.contains("overdue") ? seen.counts.overdue
                                     : seen.counts.training) = agent.join.slots;
    hear(agent, seen);
}

void Story::fail(Puppet& agent, const Words& words) {
    native::WorkersFailed failed{agent.assigned.round, {}};
    auto& failure = failed.failures.emplace_back();
    failure.host = agent.name;
    failure.group_rank = static_cast<std::int32_t>(agent.assigned.group_rank);
    failure.rank = static_cast<std::int32_t>(agent.assigned.rank_base);
    failure.local_rank = 0;
    failure.pid = agent.node.pid + 1;
    std::int32_t number = 1;
    take(words, "code", number);
    failure.end = Exited{number};
    if (words.contains("signal")) {
        take(words, "signal", number);
        failure.end = Signaled{number, false};
        failure.kind = FailureKind::killed;
    }
    failure.early = words.contains("early");
    if (words.contains("full")) failure.cause.kind = CauseKind::disk_full;
    if (words.contains("lost")) {
        failure.kind = FailureKind::node_lost;
        failure.rank = failure.local_rank = -1;
    }
    if (words.contains("comm")) failure.kind = FailureKind::communication_error;
    failure.at_ns = ns(now_ - (words.contains("ago") ? duration_of(words.at("ago")) : 0ms));
    failure.uncertainty_ns = words.contains("error") ? duration_of(words.at("error")).count() : 0;
    hear(agent, failed);
}

/// fault n0 kill rank=3; fault n0 stop node=n1 for=2s; fault n0 kill daemon
void Story::fault(Puppet& agent, const Words& words) {
    native::Fault fault;
    fault.kind = words.contains("partition") ? native::FaultKind::partition
                 : words.contains("stop")    ? native::FaultKind::stop
                                             : native::FaultKind::kill;
    fault.target = words.contains("node")     ? native::FaultTarget::agent
                   : words.contains("daemon") ? native::FaultTarget::daemon
                                              : native::FaultTarget::worker;
    take(words, "rank", fault.rank);
    if (words.contains("for")) fault.for_ms = ms_of(words.at("for"));
    const auto node = words.contains("node") ? words.at("node") : std::string();
    hear(agent, native::Command{9, native::CommandVerb::inject_fault, node, "a rehearsal", fault});
}

void Story::twin(Puppet& agent) {
    const auto connection = next_connection_++;
    names_[connection] = cat("twin of ", agent.name);
    step(ConnectionAccepted{connection, "10.0.0.2"});
    native::Hello hello;
    hello.job = "job";
    hello.node = agent.node;
    hello.connection = agent.connection_number;
    step(Received{connection, hello});
    step(Received{connection, agent.join});
}

void Story::close(Puppet& agent) {
    const auto connection = std::exchange(agent.connection, 0);
    if (connection != 0) step(ConnectionEnded{connection, "reset"});
}

void Story::died(Puppet& agent) {
    const auto connection = next_connection_++;
    names_[connection] = cat("guardian of ", agent.name);
    step(ConnectionAccepted{connection, "10.0.0.1"});
    native::Hello hello;
    hello.job = "job";
    hello.node = agent.node;
    step(Received{connection, hello});
    step(Received{connection, native::AgentDied{"killed by signal 9"}});
}

void Story::hear(Puppet& agent, const native::Message& message) {
    MUSTER_CHECK(agent.connection != 0, agent.name);
    step(Received{agent.connection, message});
}

void Story::advance(Duration duration) {
    const auto until = now_ + duration;
    for (;;) {
        Puppet* next = nullptr;
        for (auto& [name, agent] : puppets_) {
            if (agent.connection == 0 || agent.silent) continue;
            if (next == nullptr || agent.next_ping < next->next_ping) next = &agent;
        }
        const auto ping_at = next == nullptr ? no_deadline : std::max(next->next_ping, now_);
        const auto wake_at = std::max(server_->deadline(), now_);
        if (std::min(ping_at, wake_at) > until) break;
        now_ = std::min(ping_at, wake_at);
        if (ping_at <= wake_at) {
            next->next_ping = now_ + std::chrono::milliseconds(terms_.lease_ms) / 5;
            hear(*next, native::Ping{1, 0});
        } else {
            step(Elapsed{});
        }
    }
    now_ = until;
    compare_with_events();
}

void Story::restart(Duration down) {
    now_ += down;
    for (auto& [name, agent] : puppets_) agent.connection = 0;
    std::vector<Record> records;
    for (const auto& [key, value] : kept_) records.push_back({key, value});
    auto kept = decode_state(records);
    MUSTER_CHECK(kept.has_value(), kept.has_error() ? kept.error().context : "");
    server_ = std::make_unique<Server>(config_, now_, *std::move(kept));
    if (!config_.keep_records) replays_.clear();
}

void Story::show(const std::string& what) {
    if (what == "job") return line(server_->status_json(now_));
    if (what == "failures") {
        for (const auto& job : server_->summaries(now_))
            for (const auto& [kind, count] : job.counters.failures)
                line(cat(kind.first, " (", kind.second, "): ", count));
        return;
    }
    if (what == "events") {
        for (const auto& event : std::exchange(events_, {})) line(cat(type_name(event.kind), " ", event.text));
        return;
    }
    if (what == "notes") {
        for (const auto& note : puppet("n1").assigned.notes) line(note);
        return;
    }
    for (const auto& [name, agent] : puppets_)
        if (agent.assigned.round != no_round)
            line(cat(name, ": round ", agent.assigned.round, ", group rank ", agent.assigned.group_rank, " of ",
                     agent.assigned.group_world_size));
}

std::string Story::name_of(ConnectionId connection) const {
    const auto found = names_.find(connection);
    return found == names_.end() ? cat("connection ", connection) : found->second;
}

void Story::step(const ServerEvent& event) {
    const auto answer = server_->step(event, now_);
    print(answer);
    MUSTER_CHECK(server_->indexes_agree());
    // A story has thousands of heartbeats. What one of them changes is seen at the end of the `advance`.
    const auto* received = std::get_if<Received>(&event);
    const bool is_heartbeat = received != nullptr && std::holds_alternative<native::Ping>(received->message);
    if (!is_heartbeat || !answer.why.empty()) compare_with_events();
}

void Story::compare_with_events() {
    const auto status = nlohmann::json::parse(server_->status_json(now_));
    for (const auto& job : status["jobs"]) {
        const auto known = replays_.find(job["id"].get<std::string>());
        if (known == replays_.end()) continue;  // None of its nodes was accepted.
        if (is_held_) known->second.stand_still();
        const auto difference = known->second.difference(job, now_);
        MUSTER_CHECK(difference.empty(), difference);
    }
}

void Story::print(const ServerStep& step) {
    events_.insert(events_.end(), step.why.begin(), step.why.end());
    for (const auto& event : step.why)
        if (!event.job.empty()) replays_[event.job].take(event);
    for (const auto& why : step.why)
        if (why.place == EventPlace::log_and_stream) line(cat("log: ", why.text));
    for (const auto& record : step.records) {
        if (!record.value.empty()) {
            kept_[record.key] = record.value;
            continue;
        }
        kept_.erase(record.key);
        if (record.key == job_key("job")) line("state: the job is deleted");
    }
    for (const auto& action : step.actions) {
        if (const auto* send = std::get_if<SendTo>(&action)) {
            if (std::holds_alternative<native::Pong>(send->message)) continue;
            std::vector<std::string> names;
            for (const auto connection : send->connections) {
                names.push_back(name_of(connection));
                const auto* assigned = std::get_if<native::Assigned>(&send->message);
                if (assigned != nullptr) puppets_.at(names.back()).assigned = *assigned;
            }
            std::sort(names.begin(), names.end());
            line(cat(muster::join(names, " "), " <- ", describe(send->message)));
        } else if (const auto* closed = std::get_if<CloseConnection>(&action)) {
            line(cat("close ", name_of(closed->connection), ": ", closed->why));
            for (auto& [name, agent] : puppets_)
                if (agent.connection == closed->connection) agent.connection = 0;
        } else if (const auto* fresh = std::get_if<FreshStore>(&action)) {
            line(cat("fresh store for ", fresh->job));
        } else if (const auto* forgotten = std::get_if<JobForgotten>(&action)) {
            line(cat("forgotten: ", forgotten->job));
        } else if (const auto* suffers = std::get_if<SufferFault>(&action)) {
            line(cat("the daemon suffers ", native::describe(suffers->fault)));
        }
    }
}

}  // namespace muster::test
