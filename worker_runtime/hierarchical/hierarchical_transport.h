// Several nodes with several ranks each: shared memory inside, TCP between.
//
// A large all_reduce goes from node to node as it goes from rank to rank over TCP (tcp_chain.h): a node adds the
// elements of all its ranks, which lie in memory that they share, to the sums of the nodes before. As many ranks of
// each node as the smallest has do that at once, for a slice each. So a node sends and receives each byte twice,
// however many ranks it has, and an element's sum still runs in rank order: the same bits as over TCP alone, or on one
// node. Messages between ranks of one node go through their memory; all else goes over TCP between all ranks.
#pragma once

#include <memory>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/hierarchical/node_layout.h"
#include "worker_runtime/shared_memory/local_meeting.h"
#include "worker_runtime/tcp/tcp_transport.h"
#include "worker_runtime/transport/fd_watch.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// All ranks of the group, each with the same `identities` and `layout`; `door` is this rank's.
Result<std::unique_ptr<Transport>> make_hierarchical_transport(const GroupTerms& terms, const TcpOptions& options,
                                                               LocalDoor door, std::vector<LocalIdentity> identities,
                                                               NodeLayout layout, std::shared_ptr<FdWatch> watch);

}  // namespace muster::runtime
