// Composes the Assigned message of each node of a new round.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/rounds/member.h"
#include "rendezvous/rounds/sealed_round.h"

namespace muster::rendezvous {

/// One Assigned for each of `members`, which stand in the order of their group ranks: rank bases are prefix sums of
/// the slots, role bases the same within each role, the store is that of group rank 0, which alone gets the
/// addresses of all nodes. `heartbeat` is their pace.
std::vector<native::Assigned> assignments(const std::vector<const Member*>& members, const SealedRound& round,
                                          std::uint32_t restart_count, Duration heartbeat);

/// That of one of them alone. All of them may ask for it, one after another.
native::Assigned assignment(std::uint32_t group_rank, const std::vector<const Member*>& members,
                            const SealedRound& round, std::uint32_t restart_count, Duration heartbeat);

/// At which others reach a node, separated by commas. The best ones: a message with thousands of nodes has not the room
/// for all, nor the asker the time.
std::string peer_address(const Member& member);

/// The first ones; the rest is a count.
std::string some_hosts(const std::vector<std::string>& hosts);

/// What a new round's notes say about versions and arguments.
std::vector<std::string> notes_on_members(const std::vector<const Member*>& members);

/// From where the workers of these nodes may connect, as far as it is known: how the daemon sees each node, and what
/// the node says of itself. The first ones of each node come first, because the list has a limit. Loopback is left out.
std::vector<std::string> store_clients(const std::vector<const Member*>& members);

/// One sentence for each component whose versions differ between `members`, with who has which.
std::vector<std::string> version_notes(const std::vector<const Member*>& members);

/// One sentence for each role whose nodes have different programs or arguments, with two of these. It is no refusal,
/// because a script may take its node's number.
std::vector<std::string> argument_notes(const std::vector<const Member*>& members);

/// For the member at `place`: whom it asks. `at` knows the members by their positions. A node without a peer port is
/// named with port 0: it cannot be asked.
native::Peers peers(const std::function<const Member&(std::uint32_t)>& at, Round round, native::TreePlace place);

}  // namespace muster::rendezvous
