#include "rendezvous/rounds/ledgers/health_breaker.h"

#include <algorithm>

#include "rendezvous/base/text/rank_text.h"

namespace muster::rendezvous {

std::uint32_t parked_max(std::uint32_t node_count) {
    constexpr std::uint32_t parts = 20;
    return std::max<std::uint32_t>(1, node_count / parts);
}

std::string finding_key(std::string_view finding, std::string_view host) {
    std::string text;
    while (!host.empty()) {
        const auto at = finding.find(host);
        if (at == std::string_view::npos) break;
        text.append(finding.substr(0, at)).append("HOST");
        finding.remove_prefix(at + host.size());
    }
    text.append(finding);
    return without_numbers(text);
}

}  // namespace muster::rendezvous
