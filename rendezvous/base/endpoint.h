// Parses and formats host:port and port ranges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster {

struct Endpoint {
    /// A name or a numeric address, IPv6 without its brackets; or several numeric addresses of one host, separated by
    /// commas, best first. The connecting side tries all of them.
    std::string host;
    std::uint16_t port = 0;

    friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Reads "host", "host:port", "[v6]", "[v6]:port". A bare IPv6 address with several colons and no brackets is taken as
/// a host without a port. Errors (invalid_argument) quote the text and say what is accepted: port 0..65535 of 1 to 5
/// digits, host of letters, digits, '.', '-', '_' and ':'. Inside the brackets several addresses may stand.
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port);

/// "host:port", with brackets around an IPv6 address and around several addresses.
std::string describe(const Endpoint& endpoint);

/// "29400", "29500-29599"; {0, 0} is an ephemeral port.
struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
    friend bool operator==(const PortRange&, const PortRange&) = default;
};

/// Reads "P" or "P-Q" (also "P:Q"), P <= Q. Errors quote the text and say what is accepted.
Result<PortRange> parse_port_range(std::string_view text);

/// "P" or "P-Q".
std::string describe(const PortRange& ports);

/// True for "localhost", 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view host);

}  // namespace muster
