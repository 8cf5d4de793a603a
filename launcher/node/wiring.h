// Builds the parts of a run from its configuration and runs them: guardian, daemon, stores, client, agent, in this
// order. The order follows from constraints. The guardian is forked before any thread exists. The daemon's port is
// bound before the agent joins. The daemon stops last, because the other nodes receive the end from it.
#pragma once

namespace muster::launcher {

/// Runs `muster`: argv to exit code. Call it once.
int run(int argc, const char* const* argv);

}  // namespace muster::launcher
