#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

void MemoryState::write(std::uint64_t sequence, std::vector<Record>) {
    if (persisted) persisted(sequence);
}

}  // namespace muster::rendezvous
