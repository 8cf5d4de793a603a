// Builds the real thing from a configuration and runs it: guardian, daemon, stores, client, agent, in this order.
//
// The order is that of the constraints. The guardian is forked before any thread exists; the daemon's port is bound
// before anything is told to join; the daemon is the last to go, because the other nodes must hear the end from it.
#pragma once

namespace muster::launcher {

/// The whole of `muster`: argv to exit code. Called once.
int run(int argc, const char* const* argv);

}  // namespace muster::launcher
