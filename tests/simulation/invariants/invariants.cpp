// Invariants: what there is in the world, and its processes (S4, S5, S8).
#include "tests/simulation/invariants/invariants.h"

#include <algorithm>

#include "rendezvous/rounds/terms.h"

namespace muster::simulation {

std::size_t Invariants::add_job(std::string name, native::JobTerms terms) {
    JobTruth& job = jobs_.emplace_back();
    job.name = std::move(name);
    job.terms = terms;
    return jobs_.size() - 1;
}

void Invariants::newcomer(Incarnation incarnation, AgentTruth truth) {
    jobs_[truth.job].last_newcomer = events_.now();
    agents_[incarnation] = std::move(truth);
}

RoundTruth* Invariants::round_of(Incarnation incarnation, Round number) {
    auto& rounds = jobs_[agents_.at(incarnation).job].rounds;
    RoundTruth* found = nullptr;
    for (auto& [key, round] : rounds) {
        if (key.second == number && round.delivered.contains(incarnation)) found = &round;
    }
    return found;
}

// ---- processes ----

std::pair<std::uint64_t, Round> Invariants::key_of(Incarnation incarnation, Round number) const {
    std::pair<std::uint64_t, Round> key{0, number};
    for (const auto& [candidate, round] : jobs_[agents_.at(incarnation).job].rounds) {
        if (candidate.second == number && round.delivered.contains(incarnation)) key = candidate;
    }
    return key;
}

void Invariants::process_started(Incarnation incarnation, Round number, std::int32_t pid, ProcessKind kind) {
    JobTruth& job = jobs_[agents_.at(incarnation).job];
    const auto key = key_of(incarnation, number);
    const bool fresh = processes_.emplace(pid, ProcessTruth{.agent = incarnation, .round = key, .kind = kind}).second;
    if (!fresh) violated("S5", cat("process ", pid, " was started twice"));
    RoundTruth& round = job.rounds[key];
    if (++round.alive_count == 1) job.running.insert(key);
    if (kind == ProcessKind::worker) ++round.worker_count;
}

void Invariants::process_ended(Incarnation incarnation, Round, std::int32_t pid) {
    const auto found = processes_.find(pid);
    if (found == processes_.end() || found->second.ended) {
        return violated("S5", cat("process ", pid, " was reaped twice"));
    }
    found->second.ended = true;
    if (held_.erase(pid) > 0) return;
    JobTruth& job = jobs_[agents_.at(incarnation).job];
    RoundTruth& round = job.rounds[found->second.round];
    if (!found->second.leftover && --round.alive_count == 0) job.running.erase(found->second.round);
    if (found->second.kind == ProcessKind::worker) --round.worker_count;
}

void Invariants::process_held(std::int32_t pid) {
    processes_.at(pid).held = true;
}

/// The agent has drained the round: until then its fences are those of the round, and so is what it holds.
void Invariants::leave_round(std::int32_t pid, ProcessTruth& process) {
    JobTruth& job = jobs_[agents_.at(process.agent).job];
    RoundTruth& round = job.rounds[process.round];
    if (!process.leftover && --round.alive_count == 0) job.running.erase(process.round);
    if (process.kind == ProcessKind::worker) --round.worker_count;
    held_[pid] = {process.agent, events_.now()};
}

void Invariants::process_resumed(Incarnation incarnation, Round number, std::int32_t pid) {
    auto& process = processes_.at(pid);
    JobTruth& job = jobs_[agents_.at(incarnation).job];
    process.round = key_of(incarnation, number);
    process.held = process.leftover = false;
    if (held_.erase(pid) == 0) violated("S4", cat("worker ", pid, " enters a round although it has left none"));
    RoundTruth& round = job.rounds[process.round];
    if (++round.alive_count == 1) job.running.insert(process.round);
    if (process.kind == ProcessKind::worker) ++round.worker_count;
}

/// A held worker belongs to no round, so nothing else ends it when its node is given up. Its agent kills it 0.88 lease
/// after the rendezvous was heard, and looks each tenth of the lease; the guardian of one that is stopped 0.8 lease
/// after its last look.
void Invariants::check_held() {
    for (const auto& [pid, held] : held_) {
        const AgentTruth& agent = agents_.at(held.agent);
        const bool was_stopped = agent.stopped_until > events_.now() - lease_ * 2;
        const auto due = std::max(agent.heard_daemon + lease_ * 88 / 100, held.since);
        if (events_.now() <= due + lease_ * (was_stopped ? 90 : 13) / 100) continue;
        return violated("held", cat("worker ", pid, " of ", agent.name, " is held, and the rendezvous was last heard ",
                                    describe(events_.now() - agent.heard_daemon), " ago"));
    }
}

void Invariants::through(Incarnation incarnation, Round number) {
    JobTruth& job = jobs_[agents_.at(incarnation).job];
    for (auto& [pid, process] : processes_) {
        if (process.agent != incarnation || process.round.second != number || process.ended || held_.contains(pid))
            continue;
        process.leftover = true;
        if (--job.rounds[process.round].alive_count == 0) job.running.erase(process.round);
    }
}

void Invariants::worker_failed(Incarnation incarnation, Round number) {
    if (RoundTruth* const round = round_of(incarnation, number)) ++round->failed_count;
}

void Invariants::end_reported(Incarnation, Round, std::int32_t pid) {
    if (pid == 0) return;
    if (++processes_.at(pid).reported_count > 1) violated("S5", cat("the end of worker ", pid, " was reported twice"));
}

void Invariants::drained(Incarnation incarnation, MayHold may) {
    for (auto it = processes_.begin(); it != processes_.end();) {
        auto& [pid, process] = *it;
        if (process.agent != incarnation) {
            ++it;
            continue;
        }
        if (may == MayHold::yes && process.held && !process.ended) {
            if (!held_.contains(pid)) leave_round(pid, process);
            ++it;
            continue;
        }
        if (!process.ended) {
            violated("S4", cat("process ", pid, " of round ", process.round.second, " runs although ",
                               agents_.at(incarnation).name, " says that it has drained it"));
            return;
        }
        // Nobody asks for it again.
        it = processes_.erase(it);
    }
}

void Invariants::check() {
    // Whatever else the daemon has heard, an agent may name the round that it was given when it joins again.
    for (const auto& [incarnation, agent] : agents_)
        if (agent.knows > rendezvous::round_max)
            violated("numbers", cat(agent.name, " was given round ", agent.knows, ", which no daemon accepts"));
    check_held();
    for (const JobTruth& job : jobs_) {
        if (job.running.size() < 2) continue;
        violated("S8", cat(job.name, ": rounds ", job.running.begin()->second, " and ", job.running.rbegin()->second,
                           " run at once"));
    }
}

}  // namespace muster::simulation
