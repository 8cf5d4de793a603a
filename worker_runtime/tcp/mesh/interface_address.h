// The addresses of this host that other ranks receive, and their order.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/own_addresses.h"

namespace muster::runtime {

/// The numeric address from which this host would talk to `remote` (numeric): that of the interface which reached the
/// store. Sends nothing.
Result<std::string> address_towards(const std::string& remote);

struct AddressChoice {
    std::string towards = {};  ///< The numeric address that reached the store. Empty: unknown.
    /// Interfaces as NCCL and gloo read them: names or their beginnings with commas between, "=" before exact names,
    /// "^" before all: not these. Empty: all.
    std::string names = {};
    std::string agents = {};  ///< The agent's interface towards the other nodes. Empty: unknown.
};

/// More are left out: each that is a dead end costs who connects some time.
inline constexpr std::size_t addresses_sent_max = 8;

/// Those of `own` that ranks of other hosts may try, best first: what is known to lead to other nodes, then the other
/// addresses of its interface, then those of other interfaces; the store's family before the other. Loopback and
/// link-local ones are not told unless they reached the store or their interface is named. not_found lists the
/// interfaces that there are.
Result<std::vector<std::string>> choose_addresses(const std::vector<OwnAddress>& own, const AddressChoice& choice);

}  // namespace muster::runtime
