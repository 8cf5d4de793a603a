// What agents see of their workers: kept for a loss, and put together over all nodes.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/base/known_step.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"

namespace muster::rendezvous {

namespace {

constexpr Duration progress_min = 10s;
constexpr Duration progress_max = 5min;
/// Looking at the checkpoints of all nodes at each report takes the square of their number. In large rounds, which have
/// many reports in a second, they are looked at once in this time.
constexpr Duration tiers_pause = 1s;
constexpr std::uint32_t large_round = 64;

/// Agents may say anything. Only the node's own ranks count.
native::WorkersSeen believed(native::WorkersSeen seen, const Member& member) {
    std::erase_if(seen.workers, [&member](const auto& worker) {
        return member.rank_base < 0 || worker.at.rank < member.rank_base ||
               worker.at.rank - member.rank_base >= std::int64_t{member.join.slots};
    });
    for (auto& worker : seen.workers)
        for (auto* step : {&worker.step, &worker.tally.first_step, &worker.tally.checkpoint_step})
            *step = known_step(*step);
    if (seen.counts.sum() > member.join.slots) seen.counts = {};
    std::erase_if(seen.gpus, [](const auto& gpu) { return gpu.percent > 100; });
    constexpr auto week_ns = Duration(7 * 24h).count();
    if (seen.since_step_ns > week_ns) seen.since_step_ns = -1;
    for (auto& section : seen.sections) section.time_ns = std::clamp<std::int64_t>(section.time_ns, 0, 500 * week_ns);
    auto& tiers = seen.checkpoints;
    for (auto* step : {&tiers.memory, &tiers.neighbour, &tiers.local, &tiers.shared}) *step = known_step(*step);
    return seen;
}

}  // namespace

void Job::on_report(Incarnation from_agent, const native::WorkersSeen& told, const Turn& turn) {
    const auto found = members_.find(from_agent);
    if (found == members_.end() || told.round != found->second.round) return;
    auto& member = found->second;
    const auto seen = believed(told, member);
    const auto news = steps_.take(from_agent, member.workers_seen, seen, round_.node_count);
    member.workers_seen = seen.workers;
    member.ranks_seen = seen.counts;
    if (seen.since_step_ns >= 0) member.stepped_at = turn.now - Duration(seen.since_step_ns);
    member.gpus = seen.gpus;
    member.workers_seen_at = turn.now;
    member.last_steps = seen.final;
    // A worker may end as soon as its last checkpoint is complete.
    if (member.place == Place::draining && member.round == round_.number) tell_checkpoints(news, turn);
    if (member.place != Place::running) return;
    if (!seen.final) {
        seen_.note(seen.workers, turn.now);
        member.checkpoints = seen.checkpoints;
        note_tiers(turn);
    }
    note_steps(member, turn);
    if (!round_.running()) return;
    tell_checkpoints(news, turn);
    tell_hang(news.hang, turn);
    tell_progress(turn);
}

void Job::on_report(Incarnation from_agent, const native::StandbysSeen& seen, const Turn&) {
    if (const auto found = members_.find(from_agent); found != members_.end()) found->second.standbys = seen;
}

void Job::note_tiers(const Turn& turn) {
    if (round_.node_count > large_round && turn.now < tiers_noted_at_ + tiers_pause) return;
    tiers_noted_at_ = turn.now;
    native::TierSteps all;
    bool is_first = true;
    for (const auto& [incarnation, member] : members_)
        if (member.place == Place::running && member.round == round_.number)
            add_node(all, member.checkpoints, std::exchange(is_first, false));
    tiers_.take(all, turn.now);
}

void Job::tell_checkpoints(const StepLedger::News& news, const Turn& turn) {
    if (news.checkpoint_step >= 0)
        turn.note(EventKind::checkpoint_committed,
                  cat("job '", id_, "': the checkpoint of step ", news.checkpoint_step, " is complete"),
                  {.checkpoint_step = news.checkpoint_step});
    if (news.checkpoint_failure_count > 0)
        turn.note(EventKind::checkpoint_failed, cat("job '", id_, "': ", news.checkpoint_failure_count,
                                                    " save of a checkpoint failed; the log of rank 0 has the reason"));
}

void Job::tell_hang(StepLedger::Hang hang, const Turn& turn) {
    if (hang == StepLedger::Hang::suspected) {
        auto facts = spent_facts();
        facts.hung_ms = hung_ms(turn.now);
        turn.note(EventKind::hang_suspected,
                  cat("job '", id_, "': ranks wait in an operation that others do not reach"), std::move(facts));
    }
    if (hang == StepLedger::Hang::over)
        turn.note(EventKind::hang_over, cat("job '", id_, "': the ranks that waited go on"), spent_facts());
}

/// About a hundred times in a round, so that a job of weeks keeps its history, and not more often than nodes report.
void Job::tell_progress(const Turn& turn) {
    if (round_.stepping_count < round_.node_count || turn.now < round_.progress_told_at) return;
    const auto step = slowest_step();
    if (step < 0) return;
    const auto runs_for = turn.now - round_.sealed_at;
    round_.progress_told_at = turn.now + std::clamp<Duration>(runs_for / 100, progress_min, progress_max);
    turn.note(EventKind::round_progress,
              cat("job '", id_, "': all ranks of round ", round_.number, " have completed step ", step), spent_facts());
}

/// The first step of the last rank ends the round's start.
void Job::note_steps(Member& member, const Turn& turn) {
    const auto& workers = member.workers_seen;
    const bool steps = !workers.empty() && std::ranges::all_of(workers, [](const auto& one) { return one.step >= 0; });
    if (steps) count_stepping(member, turn);
}

/// A node without running workers is not waited for, whether or not it has reported steps.
void Job::succeed(Member& member, const Turn& turn) {
    set_place(member, Place::succeeded);
    count_stepping(member, turn);
}

void Job::count_stepping(Member& member, const Turn& turn) {
    if (std::exchange(member.stepping, true) || ++round_.stepping_count != round_.node_count) return;
    const auto step = slowest_step();
    if (step < 0) return;  // No program reports steps.
    unkept_ = true;
    auto facts = spent_facts();
    facts.first_step = first_step();
    turn.note(EventKind::round_stepping,
              cat("job '", id_, "': all ranks of round ", round_.number, " have completed a step (", step, ")"),
              std::move(facts));
    take_events(turn);
}

/// What divides the time of a round between training and the rest.
EventFacts Job::spent_facts() const {
    return {.step = slowest_step(), .data_wait_ms = steps_.data_wait_ms(), .sections = steps_.sections()};
}

/// Since the last step of any rank. -1: it is unknown, or no longer than some steps are.
std::int64_t Job::hung_ms(Instant now) const {
    auto last = Instant::min();
    for (const auto& [incarnation, member] : members_)
        if (member.round == round_.number) last = std::max(last, member.stepped_at);
    const auto median = steps_.median_step();
    return median && last > Instant::min() && now - last > 3 * *median ? (now - last) / 1ms : -1;
}

std::int64_t Job::first_step() const {
    std::int64_t first = -1;
    for (const auto& [incarnation, member] : members_)
        if (member.round == round_.number)
            for (const auto& worker : member.workers_seen)
                if (const auto its = worker.tally.first_step; its >= 0) first = first < 0 ? its : std::min(first, its);
    return first;
}

/// The last step that all ranks of the ended round have completed, by the last words of their agents. -1: none of them
/// had any. What a lost node's ranks did last is not known; they kept pace with the others.
std::int64_t Job::last_step() const {
    std::int64_t last = -1;
    for (const auto& [incarnation, member] : members_)
        if (member.round == round_.number && member.last_steps)
            for (const auto& worker : member.workers_seen)
                if (worker.step >= 0) last = last < 0 ? worker.step : std::min(last, worker.step);
    return last;
}

std::int64_t Job::slowest_step() const {
    if (round_.stepping_count < round_.node_count || round_.number == no_round) return -1;
    std::optional<std::int64_t> slowest;
    if (round_.gone_step >= 0) slowest = round_.gone_step;
    for (const auto& [incarnation, member] : members_)
        if (member.round == round_.number)
            for (const auto& worker : member.workers_seen)
                if (worker.step >= 0 || member.place != Place::succeeded)
                    slowest = std::min(slowest.value_or(worker.step), worker.step);
    return slowest.value_or(-1);
}

/// No consequence but words: what ends a hang is the operation's own deadline, or the agent of a worker that is
/// stopped.
void Job::send_job_seen(const Turn& turn) {
    if (!round_.running() || turn.now < seen_.due()) return;
    std::vector<SeenLedger::Node> nodes;
    SendTo told;
    for (const auto* member : there_by_rank()) {
        if (!member->connected()) continue;
        told.connections.push_back(member->connection);
        // Workers that have all exited 0 neither wait nor come, whatever was seen of them last.
        if (member->place == Place::running)
            nodes.push_back({member->node.host, member->workers_seen, member->workers_seen_at});
    }
    auto said = seen_.look(nodes, turn.now);
    if (!said) return;
    said->round = round_.number;
    for (const auto& line : said->lines)
        turn.tell(EventKind::worker_late, cat("job '", id_, "': ", line.text), {.rank = line.rank});
    told.message = *std::move(said);
    turn.step.actions.push_back(std::move(told));
}

}  // namespace muster::rendezvous
