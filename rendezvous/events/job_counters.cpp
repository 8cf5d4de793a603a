#include "rendezvous/events/job_counters.h"

namespace muster {

void JobCounters::take(const Event& event) {
    switch (event.kind) {
        case EventKind::round_sealed: ++rounds[next_round_]; return;
        case EventKind::round_ended: next_round_ = event.facts.reason; return;
        default: return;
    }
}

}  // namespace muster
