// Collectives among the ranks of one host, over memory that they share.
#pragma once

#include <memory>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/shared_memory/local_meeting.h"
#include "worker_runtime/transport/fd_watch.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// `identities` of all ranks, each able to meet all others; `door` is this rank's. limit_exceeded where the host has
/// too little memory, unsupported or io where the kernel lacks what is needed; every rank gets an error then.
Result<std::unique_ptr<Transport>> make_shared_memory_transport(const GroupTerms& terms, LocalDoor door,
                                                                std::vector<LocalIdentity> identities,
                                                                std::shared_ptr<FdWatch> watch);

class SharedGroup;

/// Takes over a group that has formed.
std::unique_ptr<Transport> shared_memory_transport_over(std::unique_ptr<SharedGroup> group);

}  // namespace muster::runtime
