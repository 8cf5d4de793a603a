#include "rendezvous/rounds/ledgers/verdict.h"

#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

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

bool is_final(const Failure& failure) {
    const auto* exited = std::get_if<Exited>(&failure.end);
    return failure.rank >= 0 && exited != nullptr &&
           (exited->code == saved_and_left_code || exited->code == never_again_code);
}

std::string sentence(const Failure& failure) {
    if (failure.kind == FailureKind::node_lost) return cat(failure.host, " was lost: ", failure.message);
    if (failure.rank < 0) return cat(failure.host, " failed: ", failure.message);
    const auto cause = failure.cause.kind;
    return cat("rank ", failure.rank, " on ", failure.host, " failed: ", describe(failure.end),
               cause == CauseKind::unknown ? std::string() : cat(" (", description_of(cause), ")"));
}

}  // namespace muster::rendezvous
