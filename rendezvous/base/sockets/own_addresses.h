// The addresses of this host's interfaces, as the kernel lists them. No name service is used.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/sockets/socket_address.h"

namespace muster {

struct OwnAddress {
    SocketAddress address;
    std::string interface;
    bool is_loopback = false;
    bool is_running = true;  ///< False: a bridge without a member, or an unplugged cable.
};

/// Those of interfaces that are up. Empty when the kernel does not say.
std::vector<OwnAddress> list_own_addresses();

/// The numeric ones that other hosts may know, link-local IPv6 left out (it means nothing without the reader's own
/// interface): those whose link is up first, loopback last; 127.0.0.1 if there is none.
std::vector<std::string> own_addresses();

/// The best of `addresses`, as Endpoint::host lists them.
std::string address_list(const std::vector<std::string>& addresses);

}  // namespace muster
