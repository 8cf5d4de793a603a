// The options of our TCP connections, on both sides.
#pragma once

#include "rendezvous/base/time.h"

namespace muster {

/// Failures are ignored: every option here only makes a working connection better.
void set_option(int fd, int level, int name, int value);

/// Each answer goes out at once; a peer that vanished without a word is noticed: by keep-alive probes while the
/// connection is idle, by unacknowledged data after `silence_max`.
void tune_stream(int fd, Duration silence_max);

/// For clients of a store: as long as a call waits by default.
inline constexpr Duration store_silence_max = 300s;

/// For the agents' heartbeats: a lost segment of a thin stream is sent again after one interval each time, without
/// doubling it, so that loss does not look like silence.
void tune_thin_stream(int fd);

}  // namespace muster
