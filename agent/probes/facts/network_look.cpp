#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "agent/probes/facts/fact_line.h"
#include "agent/probes/facts/looks.h"
#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

namespace fs = std::filesystem;

std::int64_t number_in(const std::string& path) {
    std::int64_t number = 0;
    return parse_number(trim(first_line(path)), number) ? number : 0;
}

void print_interface(const std::string& at, const std::string& name) {
    constexpr std::int64_t loopback_type = 772;  // ARPHRD_LOOPBACK
    std::error_code ignored;
    const auto statistic = [&at](const char* of) { return number_in(cat(at, "/statistics/", of)); };
    print_fact("interface", {{"name", name},
                             {"loopback", number_in(at + "/type") == loopback_type ? "1" : "0"},
                             {"running", first_line(at + "/carrier") == "1" ? "1" : "0"},
                             {"hardware", fs::exists(at + "/device", ignored) ? "1" : "0"},
                             {"bus", fs::read_symlink(at + "/device/subsystem", ignored).filename().string()},
                             {"speed", first_line(at + "/speed")},
                             {"duplex", first_line(at + "/duplex")},
                             {"mtu", first_line(at + "/mtu")},
                             {"errors", cat(statistic("rx_errors") + statistic("tx_errors"))},
                             {"packets", cat(statistic("rx_packets") + statistic("tx_packets"))}});
    const auto members = first_line(at + "/bonding/slaves");
    for (const auto member : split(members, ' '))
        if (!member.empty())
            print_fact("bond-member", {{"bond", name},
                                       {"name", std::string(member)},
                                       {"state", first_line(cat(at, "/lower_", member, "/bonding_slave/mii_status"))}});
}

}  // namespace

void look_at_network() {
    const std::string interfaces = "/sys/class/net";
    std::vector<std::string> names;
    std::error_code failure;
    for (fs::directory_iterator at(interfaces, failure), end; !failure && at != end; at.increment(failure))
        if (at->is_directory(failure)) names.push_back(at->path().filename().string());
    std::ranges::sort(names);
    for (const auto& name : names) print_interface(cat(interfaces, '/', name), name);
    const std::string settings = "/proc/sys/net/";
    print_fact("tcp", {{"somaxconn", first_line(settings + "core/somaxconn")},
                       {"abort-on-overflow", first_line(settings + "ipv4/tcp_abort_on_overflow")}});
    const auto range = first_line(settings + "ipv4/ip_local_port_range");
    print_fact("ports", {{"first", range.substr(0, range.find('\t'))},
                         {"last", range.substr(range.find('\t') + 1)},
                         {"reserved", first_line(settings + "ipv4/ip_local_reserved_ports")}});
    if (const auto max = first_line(settings + "netfilter/nf_conntrack_max"); !max.empty())
        print_fact("conntrack", {{"max", max}, {"count", first_line(settings + "netfilter/nf_conntrack_count")}});
}

}  // namespace muster::agent
