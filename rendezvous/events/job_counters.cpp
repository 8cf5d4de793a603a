#include "rendezvous/events/job_counters.h"

namespace muster {

void JobCounters::take(const Event& event) {
    switch (event.kind) {
        case EventKind::round_sealed: ++rounds[next_round_]; return;
        case EventKind::round_ended: next_round_ = event.facts.reason; return;
        case EventKind::worker_failed:
            ++failures[{event.facts.kind, event.facts.cause.empty() ? "unknown" : event.facts.cause}];
            return;
        case EventKind::node_lost: ++failures[{"node_lost", "unknown"}]; return;
        default: return;
    }
}

}  // namespace muster
