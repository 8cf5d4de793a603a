// Invariants: what there is in the world, and its processes (S4, S5, S8).
#include "tests/simulation/invariants/invariants.h"

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

void Invariants::process_started(Incarnation incarnation, Round number, std::int32_t pid, ProcessKind kind) {
    JobTruth& job = jobs_[agents_.at(incarnation).job];
    std::pair<std::uint64_t, Round> key{0, number};
    for (auto& [candidate, round] : job.rounds) {
        if (candidate.second == number && round.delivered.contains(incarnation)) key = candidate;
    }
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
    JobTruth& job = jobs_[agents_.at(incarnation).job];
    RoundTruth& round = job.rounds[found->second.round];
    if (!found->second.leftover && --round.alive_count == 0) job.running.erase(found->second.round);
    if (found->second.kind == ProcessKind::worker) --round.worker_count;
}

void Invariants::through(Incarnation incarnation, Round number) {
    JobTruth& job = jobs_[agents_.at(incarnation).job];
    for (auto& [pid, process] : processes_) {
        if (process.agent != incarnation || process.round.second != number || process.ended) continue;
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

void Invariants::drained(Incarnation incarnation) {
    for (auto it = processes_.begin(); it != processes_.end();) {
        const auto& [pid, process] = *it;
        if (process.agent != incarnation) {
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
    for (const JobTruth& job : jobs_) {
        if (job.running.size() < 2) continue;
        violated("S8", cat(job.name, ": rounds ", job.running.begin()->second, " and ", job.running.rbegin()->second,
                           " run at once"));
    }
}

}  // namespace muster::simulation
