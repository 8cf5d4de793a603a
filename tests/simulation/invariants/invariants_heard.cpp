// Invariants: what befalls the daemon, and what it hears.
#include "tests/simulation/invariants/invariants.h"

#include <algorithm>
#include <utility>

#include "rendezvous/rounds/ledgers/verdict.h"

namespace muster::simulation {

void Invariants::daemon_started(bool goes_on) {
    connections_.clear();
    daemon_started_ = events_.now();
    state_kept_ = goes_on;
    if (goes_on) return;
    for (JobTruth& job : jobs_) begin_life(job);
}

/// The daemon knows nothing of this job any more: it was restarted, or has forgotten a job that was over.
void Invariants::begin_life(JobTruth& job) {
    ++job.life;
    job.ending_remembered = false;
    job.last_sealed.reset();
    job.heard.clear();
    job.last_restart_count.reset();
    job.last_end.reset();
    job.outcome.reset();
    job.taught = false;
    job.charges.clear();
    forget_parked(job);
}

void Invariants::job_forgotten(const std::string& name) {
    for (JobTruth& job : jobs_) {
        if (job.name != name) continue;
        begin_life(job);
        job.ending_remembered = true;
    }
}

/// Those that a leader has found in the kept state. A job that was over and is not among them may have been deleted by
/// one that led no more before it could say so.
void Invariants::jobs_kept(const std::set<std::string>& names) {
    for (const JobTruth& job : jobs_)
        if (job.outcome && !names.contains(job.name)) job_forgotten(job.name);
}

void Invariants::daemon_paused() {
    daemon_failed_ = events_.now();
    if (events_.now() - std::max(daemon_started_, daemon_back_) < lease_ * 3 / 2) daemon_relapsed_ = events_.now();
}

void Invariants::daemon_ended() {
    daemon_paused();
    if (state_kept_) return;
    for (JobTruth& job : jobs_) {
        for (auto& [key, round] : job.rounds) {
            if (key.first != job.life) continue;
            const bool whole =
                !round.told.empty() && round.delivered.size() == round.told.begin()->second.group_world_size;
            if (!whole) round.half_told = true;
        }
    }
}

/// The one before may not know yet that it is over; from now on it must be silent.
std::uint64_t Invariants::reign_began() {
    if (reigned_) daemon_ended();
    daemon_started(true);
    reigned_ = true;
    return ++reign_;
}

void Invariants::reign_ended(std::uint64_t reign) {
    if (reign != reign_ || !std::exchange(reigned_, false)) return;
    daemon_ended();
}

void Invariants::reign_speaks(std::uint64_t reign) {
    if (reign != reign_) violated("reign", cat("the leader of reign ", reign, " speaks in reign ", reign_));
}

/// The agent speaks on this connection, so its older ones count no more (S6).
void Invariants::replace_older(const Talk& speaking) {
    if (!speaking.counts) return;
    for (auto& [other, talk] : connections_) {
        const bool older = talk.incarnation == speaking.incarnation && talk.number < speaking.number;
        if (!older || !talk.counts) continue;
        talk.counts = false;
        chronicle_.count(Happening::reconnect_overtook);
    }
}

/// Whether a newer connection of the same agent counts; once that is over, an older one may count again.
bool Invariants::overtaken(const Talk& talk) const {
    return std::ranges::any_of(connections_, [&](const auto& entry) {
        const Talk& other = entry.second;
        return other.incarnation == talk.incarnation && other.number > talk.number && other.counts;
    });
}

bool Invariants::replaced(const Talk& talk) const {
    return !talk.counts && overtaken(talk);
}

void Invariants::daemon_heard(rendezvous::ConnectionId connection, const native::Message& message) {
    ++heard_count_;
    if (const auto* hello = std::get_if<native::Hello>(&message)) {
        const auto known = agents_.find(hello->node.incarnation);
        if (known == agents_.end()) return;
        known->second.parked_for.clear();  // the daemon may have dropped it since, and tells it anew where it has not
        connections_[connection] =
            Talk{hello->node.incarnation, hello->connection, !known->second.gone, known->second.job};
        return;
    }
    const auto talk = connections_.find(connection);
    if (talk == connections_.end()) return;
    // A proof alone does not say where the agent stands, and the words behind it may be under way.
    const bool stands =
        !std::holds_alternative<native::Ping>(message) && !std::holds_alternative<native::Proof>(message);
    if (stands) replace_older(talk->second);
    JobTruth& job = jobs_[talk->second.job];
    Round mentioned = no_round;
    if (const auto* join = std::get_if<native::Join>(&message)) {
        mentioned = join->last_round;
        AgentTruth& agent = agents_.at(talk->second.incarnation);
        // A daemon that stood still reads the words of long ago.
        if (talk->second.counts && !overtaken(talk->second))
            joined(talk->second.incarnation, *join);
        else if (agent.gone)
            agent.finding = join->unhealthy;  // the daemon counts it with the others'
        // A node that parks is no reason to end a round.
        if (join->unhealthy.empty() || agent.goes_on) job.last_newcomer = events_.now();
    }
    if (const auto* resume = std::get_if<native::Resume>(&message)) {
        mentioned = resume->round;
        if (!job.last_sealed || *job.last_sealed < mentioned) {
            chronicle_.count(Happening::daemon_taught_anew);
            job.last_restart_count = resume->as_assigned.restart_count;
            job.last_end.reset();
            job.taught = true;
        }
    }
    if (const auto* failed = std::get_if<native::WorkersFailed>(&message)) {
        const auto round = job.rounds.find({job.life, failed->round});
        for (const Failure& failure : failed->failures) {
            if (round == job.rounds.end()) break;
            round->second.failed_early |= failure.early;
            round->second.failed_finally |= rendezvous::is_final(failure);
        }
    }
    if (std::holds_alternative<native::AgentDied>(message)) chronicle_.count(Happening::agent_died_reported);
    if (mentioned != no_round && talk->second.counts) {
        if (!job.last_sealed || *job.last_sealed < mentioned) job.last_sealed = mentioned;
        job.heard.emplace(mentioned, heard_count_);
    }
}

/// Whether a round with this number or a higher one had been told, or heard of, when the daemon decided what it tells
/// now. What it has heard since, while the seal waited for the disk, holds for the next seal only.
bool Invariants::is_known(const JobTruth& job, Round number, std::optional<std::uint64_t> held_since) {
    const auto told = [&](const auto& entry) {
        return entry.first.first == job.life && entry.first.second >= number && !entry.second.told.empty();
    };
    const auto heard = [&](const auto& entry) {
        return entry.first >= number && entry.second <= held_since.value_or(entry.second);
    };
    return std::ranges::any_of(job.rounds, told) || std::ranges::any_of(job.heard, heard);
}

}  // namespace muster::simulation
