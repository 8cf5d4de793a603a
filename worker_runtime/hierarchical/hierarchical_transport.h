// Several nodes with several ranks each: shared memory inside a node, TCP between nodes.
//
// A large all_reduce goes from node to node as it goes from rank to rank over TCP (tcp_chain.h): each node adds the
// elements of all its ranks, which are in shared memory, to the sums of the previous nodes. On each node as many ranks
// work in parallel as the smallest node has, each on one slice. So a node sends and receives each byte twice, however
// many ranks it has. An element's sum is still in rank order, with the same bits as over TCP alone or on one node.
// Messages between ranks of one node go through shared memory; all other operations use TCP between all ranks.
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

/// A collective: all ranks of the group pass the same `identities` and `layout`; `door` is this rank's.
Result<std::unique_ptr<Transport>> make_hierarchical_transport(const GroupTerms& terms, const TcpOptions& options,
                                                               LocalDoor door, std::vector<LocalIdentity> identities,
                                                               NodeLayout layout, std::shared_ptr<FdWatch> watch);

}  // namespace muster::runtime
