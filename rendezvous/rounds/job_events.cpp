// What a job's events say beyond their sentences.
#include <iterator>

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

std::string_view name(native::RoundEndReason reason) {
    using enum native::RoundEndReason;
    switch (reason) {
        case worker_failed: return "worker_failed";
        case node_lost: return "node_lost";
        case node_left: return "node_left";
        case node_joined: return "node_joined";
        case daemon_restarted: return "daemon_restarted";
    }
    return "unknown";
}

std::string_view name(native::JobOutcome outcome) {
    using enum native::JobOutcome;
    switch (outcome) {
        case succeeded: return "succeeded";
        case failed: return "failed";
        case crash_loop: return "crash_loop";
    }
    return "unknown";
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

}  // namespace muster::rendezvous
