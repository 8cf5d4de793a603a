// Invariants: what the daemon says (S1, S2, S3, S6, S7, and the budget).
#include "tests/simulation/invariants/invariants.h"

#include <algorithm>
#include <ranges>

#include "rendezvous/rounds/ledgers/verdict.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::simulation {

namespace {

constexpr std::int64_t drift_ppm_max = 4000;  ///< two clocks that differ by 0.2 % from the true one

}  // namespace

namespace {

constexpr std::size_t unsent_bytes_max = 64 * 1024;  ///< S7, for one connection; a world's messages are small

}  // namespace

void Invariants::on_daemon_message(const rendezvous::SendTo& said, std::optional<std::uint64_t> held_since) {
    const bool held_back = held_since.has_value();
    for (const rendezvous::ConnectionId connection : said.connections) {
        const auto found = connections_.find(connection);
        if (found == connections_.end()) continue;
        Talk& talk = found->second;
        const bool refusal = std::holds_alternative<native::Refused>(said.message);
        // To a late ping or hello; heard by nobody.
        const bool answer = std::holds_alternative<native::Pong>(said.message) ||
                            std::holds_alternative<native::Challenge>(said.message);
        check_stranger(talk, said.message);
        // What was decided before the newer connection spoke goes to the older one, which is closed behind it.
        if (replaced(talk) && !held_back && !refusal && !answer && !agents_.at(talk.incarnation).gone) {
            violated("S6", cat("the daemon spoke to ", agents_.at(talk.incarnation).name, " on connection ", connection,
                               ", which a newer one has replaced: ", native::name(said.message)));
        }
        JobTruth& job = jobs_[talk.job];
        if (const auto* assigned = std::get_if<native::Assigned>(&said.message))
            on_assigned(talk, *assigned, held_since);
        if (const auto* ended = std::get_if<native::RoundEnded>(&said.message)) {
            const auto round = job.rounds.find({job.life, ended->round});
            // One that was given up is told why it was, which need not be how its round ended, nor that it ended.
            const bool given_up = ended->why.ends_with(" was unreachable for too long");
            if (round != job.rounds.end() && !round->second.ended && !given_up) round->second.ended = ended->reason;
            if (job.last_sealed == ended->round && !job.last_end) {
                if (!given_up) job.last_end = ended->reason;
                job.last_end_at = events_.now();
            }
        }
        if (const auto* over = std::get_if<native::JobEnded>(&said.message)) {
            // What a late comer knows of rounds is of the job that is over, and no word to a new one of that name.
            if (job.ending_remembered) {
                job.last_sealed.reset();
                job.heard.clear();
            } else {
                check_outcome(job, *over);
            }
        } else if (!refusal && !answer && !std::holds_alternative<native::Drain>(said.message) &&
                   !std::holds_alternative<native::Gathering>(said.message)) {  // who is late is told to wait first
            job.ending_remembered = false;
        }
        if (std::holds_alternative<native::Gathering>(said.message)) told_waiting(talk.incarnation);
        if (const auto* parked = std::get_if<native::Parked>(&said.message)) {
            agents_.at(talk.incarnation).parked = true;
            if (parked->why.find(" is parked until its health check passes: ") != std::string::npos) {
                told_parked(talk.incarnation, parked->why, held_back);
            } else {
                told_waiting(talk.incarnation);
                chronicle_.count(parked->why.empty() ? Happening::spare_parked : Happening::node_left_out);
                if (!parked->why.empty()) check_left_out(job, talk.incarnation);
            }
        }
    }
}

/// Whoever does not know the secret is asked for it, and turned away. A node that runs what the job runs is no
/// stranger.
void Invariants::check_stranger(const Talk& talk, const native::Message& said) {
    const AgentTruth& agent = agents_.at(talk.incarnation);
    const auto* refused = std::get_if<native::Refused>(&said);
    if (refused != nullptr && refused->reason == native::RefusalReason::job_full) {
        chronicle_.count(Happening::surplus_refused);
        if (!agent.may_be_surplus) violated("refusal", cat(agent.name, " is refused: ", refused->why));
    }
    if (refused != nullptr && refused->reason == native::RefusalReason::malformed)
        violated("numbers", cat(agent.name, " is refused as malformed: ", refused->why));
    if (refused != nullptr && refused->why.find(" as its last round, ") != std::string::npos)
        violated("numbers", cat(agent.name, " is not believed: ", refused->why));
    if (!agent.stranger || std::holds_alternative<native::Challenge>(said)) return;
    if (std::holds_alternative<native::Refused>(said)) return chronicle_.count(Happening::stranger_refused);
    violated("secret", cat(agent.name, " does not know the secret, and is told ", native::name(said)));
}

/// A node may be left out only where enough of the last rounds ended with it, or an earlier agent of its host, in them.
/// (Also rounds of an earlier life of the daemon, which this one was taught. A round that was sealed, and not told
/// before the daemon ended, is known from the state to the next one, and here only by the end of the round before it.)
void Invariants::check_left_out(const JobTruth& job, Incarnation incarnation) {
    std::uint32_t ends = 0, seen = 0;
    const std::pair newest(job.life, *job.last_sealed);
    // Backwards in the order of the seals: a daemon that remembers nothing may have begun again with lower numbers.
    for (const auto& [key, round] : job.rounds | std::views::reverse) {
        if (key > newest || seen == job.terms.node_failures_of + 1) continue;
        ++seen;
        const bool over = key < newest || round.ended;
        // A member that went before it was told of the round is not known here.
        const bool all_known =
            !round.told.empty() && round.members.size() == round.told.begin()->second.group_world_size;
        const bool member = !all_known || std::ranges::any_of(round.members, [&](const auto& entry) {
            return agents_.at(entry.second).host == agents_.at(incarnation).host;
        });
        if (over && member) ++ends;
    }
    if (job.terms.node_failures_max == 0 || ends < job.terms.node_failures_max)
        violated("left_out",
                 cat(job.name, ": ", agents_.at(incarnation).name, " is left out after ", ends, " ended rounds, ",
                     job.terms.node_failures_max, " of ", job.terms.node_failures_of, " are needed"));
}

/// Charges of this life of the daemon that the budget covers at `at`: all of them, or those within its window, as long
/// as the daemon's clock may make it.
std::uint32_t Invariants::charges_at(const JobTruth& job, Moment at, std::int64_t drift_ppm) {
    const Duration window = Duration{1ms} * job.terms.restarts_window_ms;
    const Duration measured = window + window / 1'000'000 * drift_ppm;
    return static_cast<std::uint32_t>(
        std::count_if(job.charges.begin(), job.charges.end(), [&](Moment charged) { return charged + measured > at; }));
}

void Invariants::check_outcome(JobTruth& job, const native::JobEnded& ended) {
    const bool first = !job.outcome;
    if (!first && *job.outcome != ended.outcome) violated("outcome", cat(job.name, " ended in two ways"));
    job.outcome = ended.outcome;
    job.ever_ended = true;
    if (!first) return;
    const bool good = ended.outcome == native::JobOutcome::succeeded;
    chronicle_.count(good ? Happening::job_succeeded : Happening::job_failed);
    const auto last = job.rounds.find({job.life, ended.verdict.round});
    const bool windowed = job.terms.restarts_window_ms > 0;
    const auto used = windowed ? charges_at(job, job.last_end_at, drift_ppm_max) : ended.restart_count;
    if (!good && used >= job.terms.restarts_max)
        chronicle_.count(windowed ? Happening::window_spent : Happening::budget_spent);
    // A worker that asks not to be started again is obeyed whatever is left of the budget; so is one whose next start
    // would only fail in the same way.
    const auto& cause = ended.verdict.first;
    const bool early = last != job.rounds.end() && last->second.failed_early;
    const bool in_vain = ((cause && cause->early) || early) && !job.terms.restart_early_failures;
    if (!good && in_vain) chronicle_.count(Happening::early_failure);
    // A new agent that has proved no secret receives the end without its cause; it may be the only one that is left.
    const bool is_final_failure =
        cause ? rendezvous::is_final(*cause) : last != job.rounds.end() && last->second.failed_finally;
    if (!good && !is_final_failure && !in_vain && used < job.terms.restarts_max) {
        violated("budget", cat(job.name, " gives up after ", used, " of ", job.terms.restarts_max));
    }
    // A node of a round that an earlier daemon sealed may be through while a later round runs (see world.h).
    if (!good || job.taught) return;
    for (const auto& key : job.running) {
        if (job.rounds[key].worker_count > 0) violated("outcome", cat(job.name, " succeeded, but workers run"));
    }
}

void Invariants::on_assigned(Talk& talk, native::Assigned assigned, std::optional<std::uint64_t> held_since) {
    JobTruth& job = jobs_[talk.job];
    const auto known = job.rounds.find({job.life, assigned.round});
    if (known == job.rounds.end()) {
        // Somebody of an earlier life's round who asks again is told what it was told before.
        if (const RoundTruth* const old = round_of(talk.incarnation, assigned.round)) {
            if (old->told.contains(assigned.group_rank) && old->told.at(assigned.group_rank) == assigned) return;
        }
        if (is_known(job, assigned.round, held_since)) {
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
        took_part(talk.incarnation, held_since.has_value());
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
        const RoundTruth& round = jobs_[job].rounds.at({jobs_[job].life, number});
        check_ranks(jobs_[job], number, round);
        check_secret(job, number, round);
    }
    sealed_in_step_.clear();
}

void Invariants::check_seal(JobTruth& job, Round number, RoundTruth& round) {
    const std::uint32_t nodes = round.told.begin()->second.group_world_size;
    if (nodes < job.terms.nodes_min || nodes > job.terms.nodes_max) {
        violated("S3", cat(job.name, ": round ", number, " has ", nodes, " nodes, allowed are ", job.terms.nodes_min,
                           " to ", job.terms.nodes_max));
    }
    // After its end a job's name is anybody's, also of an agent whose terms are its own.
    if (!job.last_sealed) job.terms.restarts_max = agents_.at(round.members.begin()->second).restarts_max;
    check_budget(job, number, round);
    note_charge(job, number, round);
    if (job.last_sealed) chronicle_.count(Happening::round_restarted);
    job.last_end.reset();
    job.taught = false;
    job.last_restart_count = round.told.begin()->second.restart_count;
}

void Invariants::note_charge(JobTruth& job, Round number, const RoundTruth& round) {
    const std::uint32_t count = round.told.begin()->second.restart_count;
    if (job.terms.restarts_window_ms == 0) return;
    if (!job.last_restart_count) {
        // A daemon that was taught the round has heard its end itself, and what that cost.
        if (job.last_end == native::RoundEndReason::worker_failed && count > 0) job.charges.push_back(job.last_end_at);
        return;
    }
    if (count <= *job.last_restart_count) return;
    const auto before = charges_at(job, job.last_end_at, -drift_ppm_max);
    if (before >= job.terms.restarts_max)
        violated("budget",
                 cat(job.name, ": round ", number, " is one restart too many: ", before, " within the window already"));
    if (before < job.charges.size()) chronicle_.count(Happening::charge_got_old);
    job.charges.push_back(job.last_end_at);
}

/// The first seal of a daemon's life cannot be compared: it may have been taught by agents, or by nobody.
void Invariants::check_budget(const JobTruth& job, Round number, const RoundTruth& round) {
    const std::uint32_t count = round.told.begin()->second.restart_count;
    if (count > job.terms.restarts_max && job.terms.restarts_window_ms == 0) {
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
    const bool maybe = !job.last_end || (charged && lossy);
    // What a new daemon was taught may be older than the last charge, and is then charged again. Where too few of the
    // round's members agree, it does not believe their count.
    const bool right = job.taught ? count <= before + 1
                       : maybe    ? count == before || count == before + 1
                                  : count == before + (charged ? 1 : 0);
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

/// The nodes of a round share one secret, and no other round of any job has it.
void Invariants::check_secret(std::size_t job, Round number, const RoundTruth& round) {
    const auto& secret = round.told.begin()->second.secret;
    if (std::ranges::any_of(round.told, [&](const auto& told) { return told.second.secret != secret; })) {
        return violated("keys", cat(jobs_[job].name, ": the nodes of round ", number, " have different secrets"));
    }
    if (secret.empty()) return;
    const std::tuple here(job, jobs_[job].life, number);
    if (secrets_.emplace(secret, here).first->second != here) {
        violated("keys", cat(jobs_[job].name, ": round ", number, " has the secret of another round"));
    }
}

void Invariants::check_unsent(std::size_t bytes) {
    if (bytes > unsent_bytes_max) violated("S7", cat(bytes, " bytes wait on one connection"));
}

}  // namespace muster::simulation
