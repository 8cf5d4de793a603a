// This host's name and the addresses of its interfaces, as the kernel has them. No name service is used.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/sockets/address_set.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"

namespace muster {

struct OwnAddress {
    SocketAddress address;
    std::string interface;
    bool is_loopback = false;
    bool is_running = true;  ///< False: a bridge without a member, or an unplugged cable.
};

/// That of gethostname; "localhost" where it fails or is empty.
std::string host_name();

/// Those of interfaces that are up. Empty when the kernel does not say.
std::vector<OwnAddress> list_own_addresses();

/// Of `all`, those that mean something on other hosts, and loopback. Link-local IPv6 does not without the reader's own
/// interface. Link-local IPv4 (169.254.0.0/16) does where a host has no other address.
std::vector<OwnAddress> known_elsewhere(std::vector<OwnAddress> all);

/// The numeric ones of known_elsewhere: those whose link is up first, loopback last; 127.0.0.1 if there is none.
std::vector<std::string> own_addresses();

/// The best of `addresses`, as Endpoint::host lists them.
std::string address_list(const std::vector<std::string>& addresses);

/// Tells the addresses of this host from others. Not thread-safe. Reads the kernel's list again after 5 s: addresses
/// change seldom, and a list costs more than a connection.
class OwnAddresses {
  public:
    /// Also for loopback, and without regard to a zone: a client may have bound another interface than this end shows.
    [[nodiscard]] bool contains(const std::string& numeric);

  private:
    AddressSet listed_;
    Instant listed_at_{};
};

}  // namespace muster
