#include "rendezvous/rounds/missing_hosts.h"

#include <set>
#include <string_view>
#include <vector>

#include "rendezvous/base/host_list.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

/// The names are part of a sentence of at most 4,096 bytes, and a person looks for the first ones.
constexpr std::size_t named_max = 10;

/// "gpu07.cluster" and "gpu07" are one host.
std::string_view short_name(std::string_view host) {
    return host.substr(0, host.find('.'));
}

}  // namespace

std::string missing_hosts(const std::map<Incarnation, Member>& members) {
    std::set<std::string_view> here;
    std::string_view list;
    for (const auto& [incarnation, member] : members) {
        here.insert(short_name(member.node.host));
        if (!member.join.expected_hosts.empty()) list = member.join.expected_hosts;
    }
    const auto expected = list.empty() ? Error{Errc::not_found, {}} : parse_host_list(list);
    if (!expected) return {};
    std::vector<std::string> named;
    std::size_t count = 0;
    for (const auto& host : *expected) {
        if (here.contains(short_name(host))) continue;
        if (++count <= named_max) named.push_back(printable_line(host));
    }
    if (count == expected->size()) return {};
    return cat(join(named, ", "), count > named_max ? cat(" and ", count - named_max, " more") : std::string());
}

}  // namespace muster::rendezvous
