#include "rendezvous/core/verdict.h"

#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"

namespace muster::rendezvous {

namespace {

bool earlier(const Failure& a, const Failure& b) {
    return a.at_ns < b.at_ns;
}

/// Whether `other`, a kind higher in the order of blame, may have come before `current`.
bool overrules(const Failure& other, const Failure& current, Duration victim_window) {
    if (other.kind >= current.kind) return false;
    const auto slack = current.kind == FailureKind::communication_error ? victim_window : simultaneous;
    // Differences first: the times come from the wire and may be anything.
    const auto apart = static_cast<double>(other.at_ns) - static_cast<double>(current.at_ns);
    const auto error = static_cast<double>(other.uncertainty_ns) + static_cast<double>(current.uncertainty_ns);
    return apart <= error + static_cast<double>(slack.count());
}

bool same_event(const Failure& a, const Failure& b) {
    return a.host == b.host && a.pid == b.pid && a.rank == b.rank && a.group_rank == b.group_rank &&
           (a.kind == FailureKind::node_lost) == (b.kind == FailureKind::node_lost);
}

}  // namespace

const Failure& first_cause(const std::vector<Failure>& failures, Duration victim_window) {
    MUSTER_CHECK(!failures.empty());
    const Failure* cause = &*std::min_element(failures.begin(), failures.end(), earlier);
    // Each turn climbs at least one kind, so there are at most as many turns as kinds.
    for (;;) {
        const Failure* better = nullptr;
        for (const auto& failure : failures)
            if (overrules(failure, *cause, victim_window) && (!better || earlier(failure, *better))) better = &failure;
        if (!better) return *cause;
        cause = better;
    }
}

void add_failures(std::vector<Failure>& failures, std::vector<Failure> more) {
    for (auto& failure : more) {
        const auto known = std::any_of(failures.begin(), failures.end(),
                                       [&](const auto& other) { return same_event(failure, other); });
        if (!known) failures.push_back(std::move(failure));
    }
}

std::string sentence(const Failure& failure) {
    if (failure.kind == FailureKind::node_lost) return cat(failure.host, " was lost: ", failure.message);
    return cat("rank ", failure.rank, " on ", failure.host, " failed: ", describe(failure.end));
}

}  // namespace muster::rendezvous
