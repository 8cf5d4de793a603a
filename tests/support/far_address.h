// Tests of what other hosts may do.
#pragma once

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "tests/support/skip.h"

namespace muster::test {

/// An IPv4 address of this host at which it meets itself as another host would; empty without a network.
inline std::string far_address() {
    for (auto& address : own_addresses())
        if (!is_loopback(address) && address.find(':') == std::string::npos) return address;
    skip("this host has no IPv4 address beside loopback");
    return {};
}

}  // namespace muster::test
