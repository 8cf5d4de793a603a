// What a job's events say beyond their sentences.
#include <algorithm>
#include <iterator>

#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/ledgers/verdict.h"

namespace muster::rendezvous {

namespace {

/// Events of failed workers in one round: the others are counted in the verdict.
constexpr std::size_t failures_told_max = 64;

}  // namespace

EventFacts facts_of(const NodeIdentity& node) {
    return {.host = node.host, .pid = node.pid};
}

EventFacts facts_of(const Member& member) {
    return {.host = member.node.host, .pid = member.node.pid, .node = static_cast<std::int64_t>(member.arrival)};
}

std::string_view name(native::RoundEndReason reason) {
    return enumerator_name(reason);
}

std::string_view name(native::JobOutcome outcome) {
    return enumerator_name(outcome);
}

void Job::take_events(const Turn& turn) {
    auto first = turn.step.why.end();
    while (first != turn.step.why.begin() && std::prev(first)->job.empty()) --first;
    for (; first != turn.step.why.end(); ++first) {
        first->job = id_;
        if (first->round == no_round) first->round = round_.number;
        goodput_.take(*first, turn.now);
        counters_.take(*first);
    }
}

/// With what it brings. The first one brings the job's terms.
void Job::tell_joined(const Member& member, const Turn& turn) {
    const auto& join = member.join;
    auto facts = facts_of(member);
    if (terms_by_.empty()) {
        terms_by_ = label(member.node);
        auto start = terms_facts();
        start.host = facts.host;
        start.pid = facts.pid;
        if (join.queued_ms > 0)
            start.queued_ms = static_cast<std::int64_t>(std::min<std::uint64_t>(join.queued_ms, queued_ms_max));
        turn.note(EventKind::job_started, cat("job '", id_, "' is started by ", terms_by_), std::move(start));
    }
    facts.slot_count = join.slots;
    facts.role = join.role;
    facts.expected_hosts = join.expected_hosts;
    turn.note(EventKind::node_joined, cat("job '", id_, "': ", label(member.node), " joined"), std::move(facts));
    tell_inherited(member, turn);
}

/// A node may be excluded for what its host's last agent did.
void Job::tell_inherited(const Member& member, const Turn& turn) const {
    if (member.excluded)
        turn.note(EventKind::node_left_out, cat("job '", id_, "': ", exclusion_reason(member)), facts_of(member));
}

EventFacts Job::terms_facts() const {
    return {.nodes_min = terms_.nodes_min, .nodes_max = terms_.nodes_max, .restarts_max = terms_.restarts_max};
}

/// A report may come twice, and a failure may be in two kinds of reports: it counts once. All count, whether or not
/// they have an event.
bool Job::count_failure(Failure failure) {
    const std::string kind(name(failure.kind));
    const std::string cause(name(failure.cause.kind));
    if (!round_.failures.add(std::move(failure))) return false;
    ++counters_.failures[{kind, cause}];
    return true;
}

/// Of a worker that failed by itself, or because others did.
void Job::note_failure(Failure failure, const Turn& turn) {
    EventFacts facts{.host = failure.host,
                     .pid = failure.pid,
                     .rank = failure.rank,
                     .local_rank = failure.local_rank,
                     .kind = std::string(name(failure.kind))};
    if (failure.cause.kind != CauseKind::unknown) facts.cause = name(failure.cause.kind);
    if (failure.at_ns != 0) facts.uncertainty_ms = failure.uncertainty_ns / 1'000'000;
    auto text = cat("job '", id_, "': ", sentence(failure));
    if (count_failure(std::move(failure)) && round_.failures.count() <= failures_told_max)
        turn.note(EventKind::worker_failed, std::move(text), std::move(facts));
}

/// Since the first failure of the round, and of a lost node since its last word. -1: the time of none is known.
std::int64_t Job::detecting_ms(Instant now) const {
    const auto now_ns = std::chrono::nanoseconds(now.time_since_epoch()).count();
    std::int64_t longest = -1;
    for (const auto& failure : round_.failures.kept()) {
        if (failure.at_ns == 0) continue;
        const auto at_ns = failure.at_ns - (failure.kind == FailureKind::node_lost ? failure.uncertainty_ns : 0);
        longest = std::max<std::int64_t>(longest, (now_ns - at_ns) / 1'000'000);
    }
    return longest;
}

}  // namespace muster::rendezvous
