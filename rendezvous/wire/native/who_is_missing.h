// The sentence about a missing worker: the same from its own agent and, to all other nodes, from the daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/wire/native/messages.h"

namespace muster::native {

/// What follows the name of `count` workers that stand where `one` stands: "has done nothing for 12 s (asleep, after
/// all_reduce 41 of world); it is missing from all_reduce 42 of world, in which rank 0 (pid 100) on gpu0 waits".
/// Without `waiting` nobody is known to wait for them. Its host is empty where it is the speaker's own node.
std::string idle_sentence(const WorkerActivity& one, std::uint32_t count, const std::optional<WaitingWorker>& waiting);

}  // namespace muster::native
