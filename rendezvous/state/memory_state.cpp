#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

void MemoryState::write(std::uint64_t sequence, std::vector<Record>) {
    // Nothing to keep: a restarted daemon is taught anew by its agents.
    if (persisted) persisted(sequence);
}

}  // namespace muster::rendezvous
