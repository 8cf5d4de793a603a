#include "rendezvous/base/endpoint.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

bool is_host_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == ':' || c == '%';
}

Error refuse(std::string_view text, std::string_view why) {
    return {Errc::invalid_argument,
            cat("endpoint '", text, "': ", why, "; accepted are host, host:port, [v6] and [v6]:port")};
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
    std::string_view host = text;
    std::string_view port;
    bool has_port = false;
    if (text.starts_with('[')) {
        const auto close = text.find(']');
        if (close == std::string_view::npos) return refuse(text, "the '[' has no ']'");
        host = text.substr(1, close - 1);
        const auto rest = text.substr(close + 1);
        if (!rest.empty() && !rest.starts_with(':')) return refuse(text, "only ':port' may follow the ']'");
        has_port = !rest.empty();
        if (has_port) port = rest.substr(1);
    } else if (std::count(text.begin(), text.end(), ':') == 1) {
        const auto colon = text.find(':');
        host = text.substr(0, colon);
        port = text.substr(colon + 1);
        has_port = true;
    }
    if (host.empty()) return refuse(text, "the host is missing");
    const bool in_brackets = text.starts_with('[');
    if (!std::all_of(host.begin(), host.end(),
                     [&](char c) { return is_host_character(c) || (in_brackets && c == ','); }))
        return refuse(text, "the host holds a character that no name or address has");
    Endpoint endpoint{std::string(host), default_port};
    if (has_port && (port.size() > 5 || !parse_number(port, endpoint.port)))
        return refuse(text, cat("'", port, "' is no port (0 to 65535)"));
    return endpoint;
}

std::string describe(const Endpoint& endpoint) {
    const bool in_brackets = endpoint.host.find_first_of(":,") != std::string::npos;
    return in_brackets ? cat('[', endpoint.host, "]:", endpoint.port) : cat(endpoint.host, ':', endpoint.port);
}

Result<PortRange> parse_port_range(std::string_view text) {
    const auto dash = text.find_first_of("-:");
    const auto first = text.substr(0, dash);
    const auto last = dash == std::string_view::npos ? first : text.substr(dash + 1);
    PortRange range;
    const bool numbers = parse_number(first, range.first) && parse_number(last, range.last);
    if (!numbers || range.first > range.last || (range.first == 0 && range.last != 0))
        return Error{
            Errc::invalid_argument,
            cat("\"", text, "\" is no port or range of ports; write P or P-Q with 1 <= P <= Q <= 65535, or 0")};
    return range;
}

std::string describe(const PortRange& ports) {
    return ports.first == ports.last ? cat(ports.first) : cat(ports.first, '-', ports.last);
}

bool is_loopback(std::string_view host) {
    if (host == "localhost" || host == "::1") return true;
    if (!host.starts_with("127.")) return false;
    const auto pieces = split(host, '.');
    unsigned number = 0;
    return pieces.size() == 4 && std::all_of(pieces.begin(), pieces.end(),
                                             [&](auto piece) { return parse_number(piece, number) && number < 256; });
}

}  // namespace muster
