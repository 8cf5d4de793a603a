// Invariants: agents, what has befallen them, and why they put an end to workers (S9).
#include "tests/simulation/invariants/invariants.h"

#include <algorithm>

namespace muster::simulation {

void Invariants::assigned(Incarnation incarnation, const native::Assigned& assignment) {
    AgentTruth& agent = agents_.at(incarnation);
    JobTruth& job = jobs_[agent.job];
    agent.knows = assignment.round;
    for (auto& [key, round] : job.rounds) {
        if (key.second != assignment.round) continue;
        for (const auto& [rank, member] : round.members) {
            if (member == incarnation) round.delivered.insert(incarnation);
        }
    }
}

void Invariants::acted_after_finish(Incarnation incarnation) {
    violated("finish", cat(agents_.at(incarnation).name, " acted after its end"));
}

void Invariants::heard(Incarnation incarnation) {
    AgentTruth& agent = agents_.at(incarnation);
    // Only a silence that meant something is remembered.
    if (events_.now() - agent.heard_daemon > lease_) agent.silence_before = events_.now() - agent.heard_daemon;
    agent.heard_daemon = events_.now();
}

void Invariants::trouble(Incarnation incarnation) {
    agents_.at(incarnation).last_trouble = events_.now();
}

bool Invariants::healthy(Incarnation incarnation) const {
    const AgentTruth& agent = agents_.at(incarnation);
    return !agent.gone && !agent.left && !agent.in_trouble && agent.heard_daemon >= Moment{0} &&
           (agent.last_trouble < Moment{0} || agent.last_trouble < events_.now() - lease_ * 6);
}

bool Invariants::must_be_known(Incarnation incarnation) const {
    return healthy(incarnation) &&
           (calm_connects_ || events_.now() - agents_.at(incarnation).heard_daemon < lease_ / 2);
}

bool Invariants::member_trouble(const RoundTruth& round, Moment since) const {
    return std::any_of(round.members.begin(), round.members.end(), [&](const auto& member) {
        const AgentTruth& agent = agents_.at(member.second);
        return agent.gone || agent.left || agent.in_trouble || agent.last_trouble >= since;
    });
}

void Invariants::doomed(Incarnation incarnation, Round number, DoomCause cause, const native::Message* said) {
    const AgentTruth& agent = agents_.at(incarnation);
    const RoundTruth* const round = round_of(incarnation, number);
    if (round == nullptr) return;
    if (excused(*round, agent, cause, said)) {
        // What follows for the other nodes is excused as well.
        if (cause == DoomCause::unfed || cause == DoomCause::fenced) trouble(incarnation);
        return;
    }
    std::string why = "for no reason";
    if (cause == DoomCause::fenced) why = "because it was fenced";
    if (cause == DoomCause::unfed) why = "because its guardian was not fed";
    if (cause == DoomCause::lost) why = "because it gave the daemon up too early";
    if (const auto* ended = said != nullptr ? std::get_if<native::RoundEnded>(said) : nullptr) why = ended->why;
    violated("S9", cat(agent.name, " stops the healthy workers of round ", number, ": ", why));
}

/// So long a node waits for its daemon, by the user's wish (--rdzv-lost-timeout); its guardian is fed for a lease less,
/// and that may still show just after the daemon is back.
bool Invariants::gave_up(const AgentTruth& agent) const {
    const Duration silence = events_.now() - agent.heard_daemon;
    const Duration limit = Duration{1ms} * jobs_[agent.job].terms.lost_timeout_ms - lease_;
    return silence >= limit || (silence < lease_ && agent.silence_before >= limit);
}

bool Invariants::job_trouble(std::size_t job, Moment since) const {
    return std::any_of(agents_.begin(), agents_.end(), [&](const auto& entry) {
        const AgentTruth& agent = entry.second;
        return agent.job == job && (agent.in_trouble || agent.last_trouble >= since);
    });
}

/// Without a secret a stranger could invent the end of a round of one node. So beside another agent the success of one
/// that a daemon without state learned does not count (rendezvous/STATES.md, Agreement).
bool Invariants::unconfirmed(const RoundTruth& round, const AgentTruth& agent) const {
    const auto& told = round.told.begin()->second;
    if (state_kept_ || told.group_world_size != 1 || !told.secret.empty()) return false;
    return std::ranges::any_of(agents_, [&](const auto& entry) {
        const AgentTruth& other = entry.second;
        return &other != &agent && other.job == agent.job && other.heard_daemon >= daemon_started_;
    });
}

/// A daemon without state knows the terms only from its agents, and replaces those of the first one when more agents
/// claim others than it has members (rendezvous/STATES.md, Agreement). The last member of a round is not more than one.
bool Invariants::outvoted(const RoundTruth& round, const AgentTruth& agent) const {
    if (state_kept_ || !round.told.begin()->second.secret.empty()) return false;
    const bool alone = std::ranges::all_of(round.members, [&](const auto& member) {
        const AgentTruth& other = agents_.at(member.second);
        return &other == &agent || other.gone;
    });
    return alone && std::ranges::any_of(agents_, [&](const auto& entry) {
               const AgentTruth& other = entry.second;
               return other.job == agent.job && other.restarts_max != agent.restarts_max &&
                      other.heard_daemon >= daemon_started_;
           });
}

/// Whether something other than the daemon's own end explains that workers were stopped.
bool Invariants::excused(const RoundTruth& round, const AgentTruth& agent, DoomCause cause,
                         const native::Message* said) const {
    const JobTruth& job = jobs_[agent.job];
    // A daemon that died while the round began or ended leaves members who know different things. One that goes on from
    // its state has no such excuse, and no right to end a round without a reason just because it is new.
    const bool goes_on = state_kept_ && round.sealed < daemon_started_;
    if (round.half_told || round.failed_count > 0 || (round.ended && !goes_on)) return true;
    const Moment some_time_ago = events_.now() - lease_ * 6;
    const bool relapsed = events_.now() - daemon_relapsed_ < lease_ * 3;
    const bool given_up = gave_up(agent);
    switch (cause) {
        case DoomCause::drain:
        case DoomCause::worker_ended:
        case DoomCause::guardian_lost:
        case DoomCause::stop: return true;
        case DoomCause::refused: return outvoted(round, agent);
        case DoomCause::other: return false;
        case DoomCause::job_ended: return job.ever_ended;
        case DoomCause::lost: return given_up;
        case DoomCause::unfed:
        case DoomCause::fenced: return given_up || relapsed || !calm_connects_ || member_trouble(round, some_time_ago);
        case DoomCause::round_ended: break;
    }
    const auto* ended = said != nullptr ? std::get_if<native::RoundEnded>(said) : nullptr;
    if (ended == nullptr) return false;
    if (ended->reason == native::RoundEndReason::node_joined) return job.last_newcomer >= round.sealed;
    // A node of another round may have been away for long.
    const bool strangers = ended->reason == native::RoundEndReason::daemon_restarted;
    if (strangers && (job_trouble(agent.job, some_time_ago) || (round.worker_count == 0 && unconfirmed(round, agent))))
        return true;
    return relapsed || !calm_connects_ || member_trouble(round, some_time_ago);
}

}  // namespace muster::simulation
