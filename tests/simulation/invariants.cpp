#include "tests/simulation/invariants.h"

#include <algorithm>

#include "rendezvous/wire/native/codec.h"

namespace muster::simulation {

namespace {

constexpr std::size_t unsent_bytes_max = 64 * 1024;  ///< S7, for one connection; a world's messages are small

}  // namespace

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

// ---- processes: S4, S5, S8 ----

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

// ---- what the daemon hears ----

void Invariants::daemon_started() {
    connections_.clear();
    daemon_started_ = events_.now();
    for (JobTruth& job : jobs_) begin_life(job);
}

/// The daemon knows nothing of this job any more: it was restarted, or has forgotten a job that was over.
void Invariants::begin_life(JobTruth& job) {
    ++job.life;
    job.ending_remembered = false;
    job.last_sealed.reset();
    job.last_restart_count.reset();
    job.last_end.reset();
    job.outcome.reset();
    job.taught = false;
}

void Invariants::job_forgotten(const std::string& name) {
    for (JobTruth& job : jobs_) {
        if (job.name != name) continue;
        begin_life(job);
        job.ending_remembered = true;
    }
}

void Invariants::daemon_paused() {
    daemon_failed_ = events_.now();
    if (events_.now() - std::max(daemon_started_, daemon_back_) < lease_ * 3 / 2) daemon_relapsed_ = events_.now();
}

void Invariants::daemon_ended() {
    daemon_paused();
    for (JobTruth& job : jobs_) {
        for (auto& [key, round] : job.rounds) {
            if (key.first != job.life) continue;
            const bool whole =
                !round.told.empty() && round.delivered.size() == round.told.begin()->second.group_world_size;
            if (!whole) round.half_told = true;
        }
    }
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
bool Invariants::replaced(const Talk& talk) const {
    return !talk.counts && std::any_of(connections_.begin(), connections_.end(), [&](const auto& entry) {
        const Talk& other = entry.second;
        return other.incarnation == talk.incarnation && other.number > talk.number && other.counts;
    });
}

void Invariants::daemon_heard(rendezvous::ConnectionId connection, const native::Message& message) {
    if (const auto* hello = std::get_if<native::Hello>(&message)) {
        const auto known = agents_.find(hello->node.incarnation);
        if (known == agents_.end()) return;
        connections_[connection] =
            Talk{hello->node.incarnation, hello->connection, !known->second.gone, known->second.job};
        return;
    }
    const auto talk = connections_.find(connection);
    if (talk == connections_.end()) return;
    if (!std::holds_alternative<native::Ping>(message)) replace_older(talk->second);
    JobTruth& job = jobs_[talk->second.job];
    Round mentioned = no_round;
    if (const auto* join = std::get_if<native::Join>(&message)) {
        mentioned = join->last_round;
        job.last_newcomer = events_.now();
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
    if (std::holds_alternative<native::AgentDied>(message)) chronicle_.count(Happening::agent_died_reported);
    if (mentioned != no_round && talk->second.counts) {
        if (!job.last_sealed || *job.last_sealed < mentioned) job.last_sealed = mentioned;
    }
}

// ---- what the daemon says: S1, S2, S3, S6, S7, budget ----

void Invariants::daemon_said(const rendezvous::SendTo& said) {
    for (const rendezvous::ConnectionId connection : said.connections) {
        const auto found = connections_.find(connection);
        if (found == connections_.end()) continue;
        Talk& talk = found->second;
        const bool refusal = std::holds_alternative<native::Refused>(said.message);
        const bool answer = std::holds_alternative<native::Pong>(said.message);  // to a late ping; heard by nobody
        if (replaced(talk) && !refusal && !answer && !agents_.at(talk.incarnation).gone) {
            violated("S6", cat("the daemon spoke to ", agents_.at(talk.incarnation).name, " on connection ", connection,
                               ", which a newer one has replaced: ", native::name(said.message)));
        }
        JobTruth& job = jobs_[talk.job];
        if (const auto* assigned = std::get_if<native::Assigned>(&said.message)) on_assigned(talk, *assigned);
        if (const auto* ended = std::get_if<native::RoundEnded>(&said.message)) {
            const auto round = job.rounds.find({job.life, ended->round});
            if (round != job.rounds.end() && !round->second.ended) round->second.ended = ended->reason;
            if (job.last_sealed == ended->round && !job.last_end) job.last_end = ended->reason;
        }
        if (const auto* over = std::get_if<native::JobEnded>(&said.message)) {
            // What a late comer knows of rounds is of the job that is over, and no word to a new one of that name.
            if (job.ending_remembered)
                job.last_sealed.reset();
            else
                check_outcome(job, *over);
        } else if (!refusal && !answer && !std::holds_alternative<native::Drain>(said.message)) {
            job.ending_remembered = false;
        }
        if (std::holds_alternative<native::Parked>(said.message)) {
            chronicle_.count(Happening::spare_parked);
            agents_.at(talk.incarnation).parked = true;
        }
    }
}

void Invariants::check_outcome(JobTruth& job, const native::JobEnded& ended) {
    const bool first = !job.outcome;
    if (!first && *job.outcome != ended.outcome) violated("outcome", cat(job.name, " ended in two ways"));
    job.outcome = ended.outcome;
    job.ever_ended = true;
    if (!first) return;
    const bool good = ended.outcome == native::JobOutcome::succeeded;
    chronicle_.count(good ? Happening::job_succeeded : Happening::job_failed);
    if (!good && ended.restart_count >= job.terms.restarts_max) chronicle_.count(Happening::budget_spent);
    if (!good && ended.restart_count < job.terms.restarts_max) {
        violated("budget", cat(job.name, " gives up after ", ended.restart_count, " of ", job.terms.restarts_max));
    }
    // A node of a round that an earlier daemon sealed may be through while a later round runs (see world.h).
    if (!good || job.taught) return;
    for (const auto& key : job.running) {
        if (job.rounds[key].worker_count > 0) violated("outcome", cat(job.name, " succeeded, but workers run"));
    }
}

void Invariants::on_assigned(Talk& talk, const native::Assigned& assigned) {
    JobTruth& job = jobs_[talk.job];
    const auto known = job.rounds.find({job.life, assigned.round});
    if (known == job.rounds.end()) {
        // Somebody of an earlier life's round who asks again is told what it was told before.
        if (const RoundTruth* const old = round_of(talk.incarnation, assigned.round)) {
            if (old->told.contains(assigned.group_rank) && old->told.at(assigned.group_rank) == assigned) return;
        }
        if (job.last_sealed && *job.last_sealed >= assigned.round) {
            return violated("S1", cat(job.name, ": round ", assigned.round, " sealed although round ", *job.last_sealed,
                                      " is known"));
        }
    }
    RoundTruth& round = job.rounds[{job.life, assigned.round}];
    const bool fresh = round.told.empty();
    if (fresh) {
        round.sealed = events_.now();
        chronicle_.count(Happening::round_sealed);
    }
    const auto rank = round.told.find(assigned.group_rank);
    if (rank == round.told.end()) {
        const bool twice = std::any_of(round.members.begin(), round.members.end(),
                                       [&](const auto& member) { return member.second == talk.incarnation; });
        if (twice) violated("S1", cat(job.name, ": round ", assigned.round, " gives one node two group ranks"));
        round.told[assigned.group_rank] = assigned;
        round.members[assigned.group_rank] = talk.incarnation;
        sealed_in_step_.insert({talk.job, assigned.round});
        AgentTruth& agent = agents_.at(talk.incarnation);
        if (agent.parked) chronicle_.count(Happening::spare_took_over);
        agent.parked = false;
    } else if (!(rank->second == assigned) || round.members[assigned.group_rank] != talk.incarnation) {
        const bool other_node = round.members[assigned.group_rank] != talk.incarnation;
        violated(
            other_node && sealed_in_step_.contains({talk.job, assigned.round}) ? "S2" : "S1",
            cat(job.name, ": round ", assigned.round, " was told in two ways for group rank ", assigned.group_rank));
    }
    if (fresh) check_seal(job, assigned.round, round);
    if (job.last_sealed.value_or(no_round) < assigned.round) job.last_sealed = assigned.round;
}

void Invariants::daemon_step_over() {
    for (const auto& [job, number] : sealed_in_step_) {
        check_ranks(jobs_[job], number, jobs_[job].rounds.at({jobs_[job].life, number}));
    }
    sealed_in_step_.clear();
}

void Invariants::check_seal(JobTruth& job, Round number, RoundTruth& round) {
    const std::uint32_t nodes = round.told.begin()->second.group_world_size;
    if (nodes < job.terms.nodes_min || nodes > job.terms.nodes_max) {
        violated("S3", cat(job.name, ": round ", number, " has ", nodes, " nodes, allowed are ", job.terms.nodes_min,
                           " to ", job.terms.nodes_max));
    }
    check_budget(job, number, round);
    if (job.last_sealed) chronicle_.count(Happening::round_restarted);
    job.last_end.reset();
    job.taught = false;
    job.last_restart_count = round.told.begin()->second.restart_count;
}

/// The first seal of a daemon's life cannot be compared: it may have been taught by agents, or by nobody.
void Invariants::check_budget(const JobTruth& job, Round number, const RoundTruth& round) {
    const std::uint32_t count = round.told.begin()->second.restart_count;
    if (count > job.terms.restarts_max) {
        return violated("budget",
                        cat(job.name, ": round ", number, " is restart ", count, " of ", job.terms.restarts_max));
    }
    if (!job.last_restart_count) return;
    const std::uint32_t before = *job.last_restart_count;
    // A round whose end nobody was left to hear may or may not have been charged; so may one whose failures came with
    // the loss of a node, which costs nothing.
    const auto ended = job.rounds.find({job.life, job.last_sealed.value_or(no_round)});
    const bool charged = job.last_end == native::RoundEndReason::worker_failed;
    // A daemon that stood still may take a node for lost that was not.
    const bool lossy = ended == job.rounds.end() || daemon_failed_ >= ended->second.sealed ||
                       member_trouble(ended->second, ended->second.sealed) ||
                       ended->second.delivered.size() < ended->second.told.begin()->second.group_world_size;
    // What a new daemon was taught may be older than the last charge, and is then charged again.
    const bool maybe = !job.last_end || (charged && lossy) || job.taught;
    const bool right = maybe ? count == before || count == before + 1 : count == before + (charged ? 1 : 0);
    if (!right) {
        violated("budget", cat(job.name, ": round ", number, " is restart ", count, " after ", before,
                               charged ? ", a worker had failed" : ", no worker had failed"));
    }
}

/// S2: group ranks 0..G-1, worker ranks 0..world-1, each once; so for roles. As far as the round has been told.
void Invariants::check_ranks(const JobTruth& job, Round number, const RoundTruth& round) {
    const native::Assigned& first = round.told.begin()->second;
    const auto wrong = [&](std::string_view what) { violated("S2", cat(job.name, ": round ", number, ": ", what)); };
    std::vector<bool> taken(first.world_size);
    std::map<std::string, std::vector<bool>> role_taken;
    for (const auto& [group_rank, told] : round.told) {
        const AgentTruth& agent = agents_.at(round.members.at(group_rank));
        if (told.restart_count != first.restart_count) {
            return violated("budget", cat(job.name, ": round ", number, " has two restart counts"));
        }
        if (told.world_size != first.world_size || told.group_world_size != first.group_world_size ||
            group_rank >= told.group_world_size) {
            return wrong("sizes differ between nodes");
        }
        auto& roles = role_taken[agent.role];
        roles.resize(told.role_world_size);
        for (std::uint32_t local = 0; local < agent.slots; ++local) {
            const std::uint32_t rank = told.rank_base + local;
            const std::uint32_t role_rank = told.role_rank_base + local;
            if (rank >= taken.size() || taken[rank]) return wrong(cat("rank ", rank, " is out of the world or double"));
            if (role_rank >= roles.size() || roles[role_rank]) return wrong(cat("role rank ", role_rank, " is double"));
            taken[rank] = true;
            roles[role_rank] = true;
        }
    }
    if (round.told.size() < first.group_world_size) return;
    if (std::find(taken.begin(), taken.end(), false) != taken.end()) wrong("a rank is missing");
    for (const auto& [role, ranks] : role_taken) {
        if (std::find(ranks.begin(), ranks.end(), false) != ranks.end()) wrong("a role rank is missing");
    }
}

void Invariants::check_unsent(std::size_t bytes) {
    if (bytes > unsent_bytes_max) violated("S7", cat(bytes, " bytes wait on one connection"));
}

// ---- agents: S9 and the end ----

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

/// Whether something other than the daemon's own end explains that workers were stopped.
bool Invariants::excused(const RoundTruth& round, const AgentTruth& agent, DoomCause cause,
                         const native::Message* said) const {
    const JobTruth& job = jobs_[agent.job];
    // A daemon that died while the round began or ended leaves members who know different things.
    if (round.half_told || round.failed_count > 0 || round.ended) return true;
    const Moment some_time_ago = events_.now() - lease_ * 6;
    const bool relapsed = events_.now() - daemon_relapsed_ < lease_ * 3;
    const bool given_up = gave_up(agent);
    switch (cause) {
        case DoomCause::drain:
        case DoomCause::worker_ended:
        case DoomCause::guardian_lost:
        case DoomCause::stop: return true;
        case DoomCause::refused:
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
    if (strangers && job_trouble(agent.job, some_time_ago)) return true;
    return relapsed || !calm_connects_ || member_trouble(round, some_time_ago);
}

void Invariants::check() {
    for (const JobTruth& job : jobs_) {
        if (job.running.size() < 2) continue;
        violated("S8", cat(job.name, ": rounds ", job.running.begin()->second, " and ", job.running.rbegin()->second,
                           " run at once"));
    }
}

}  // namespace muster::simulation
