// Makes an agent's report fit into one frame.
#pragma once

#include <vector>

#include "rendezvous/wire/native/failure.h"

namespace muster::native {

/// Shortens `failures` so that a WorkersFailed or RoundReport that carries them stays under agent_frame_bytes_max. The
/// first failure keeps its whole tail and message; the later ones share what is left, tails going first, then long
/// messages, causes and paths; those beyond failures_max are left out.
void fit_report(std::vector<Failure>& failures);

}  // namespace muster::native
