// Interfaces and the kernel's network settings.
#include <array>

#include "agent/doctor/check_table.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Found = std::vector<Measured>;

/// A finding for each interface with a link, loopback excluded.
Found for_each_link(const DoctorFacts& facts, auto judge) {
    Found found;
    for (const auto* one : facts.look("network").all("interface"))
        if (one->text("running") == "1" && one->text("loopback") != "1")
            if (auto measured = judge(*one)) found.push_back(*std::move(measured));
    return found;
}

Found interface_speed(const DoctorFacts& facts, const DoctorLimits& limits) {
    return for_each_link(facts, [&](const FactRecord& link) -> std::optional<Measured> {
        const auto speed = link.number("speed").value_or(-1);
        const auto least = limits.of("interface-mbit");
        const bool is_half = link.text("duplex") == "half";
        // Virtual ones do not know their speed. Only those that are hardware have one that means something, and not on
        // USB: that of a server's management controller tells any speed, and its driver half duplex.
        if (link.text("hardware") != "1" || link.text("bus") == "usb" || speed <= 0 || (speed >= least && !is_half))
            return std::nullopt;
        return Measured{Level::warning, link.text("name"), cat(speed, " Mbit/s, ", link.text("duplex"), " duplex"),
                        cat("at least ", least, " Mbit/s, full duplex")};
    });
}

Found interface_mtu(const DoctorFacts& facts, const DoctorLimits& limits) {
    return for_each_link(facts, [&](const FactRecord& link) -> std::optional<Measured> {
        const auto mtu = link.number("mtu");
        const auto least = limits.of("interface-mtu");
        if (link.text("hardware") != "1" || !mtu || *mtu >= least) return std::nullopt;
        return Measured{Level::warning, link.text("name"), cat("MTU ", *mtu), cat("at least ", least),
                        cat("ip link set ", link.text("name"), " mtu ", least)};
    });
}

Found interface_errors(const DoctorFacts& facts, const DoctorLimits& limits) {
    constexpr std::int64_t million = 1'000'000, packets_min = 10'000;
    return for_each_link(facts, [&](const FactRecord& link) -> std::optional<Measured> {
        const auto errors = link.number("errors").value_or(0), packets = link.number("packets").value_or(0);
        const auto most = limits.of("interface-errors-ppm");
        if (link.text("hardware") != "1" || packets < packets_min ||
            errors <= packets / million * most + packets % million * most / million)
            return std::nullopt;
        return Measured{Level::warning, link.text("name"), cat(errors, " errors in ", packets, " packets"),
                        cat("at most ", most, " in a million"), cat("ethtool -S ", link.text("name"), " | grep err")};
    });
}

Found bond_members(const DoctorFacts& facts, const DoctorLimits&) {
    Found found;
    for (const auto* member : facts.look("network").all("bond-member"))
        if (member->text("state") != "up")
            found.push_back({Level::warning, cat(member->text("name"), " in ", member->text("bond")),
                             member->text("state"), "up", cat("cat /proc/net/bonding/", member->text("bond"))});
    return found;
}

Found conntrack(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto* table = facts.look("network").first("conntrack");
    if (table == nullptr) return {};
    const auto count = table->number("count").value_or(0), max = table->number("max").value_or(0);
    const auto most = limits.of("conntrack-percent");
    if (max <= 0 || count < max / 100 * most) return {};
    return {{Level::warning, "the kernel's connection table", cat(count, " of ", max), cat("at most ", most, " %"),
             cat("sysctl net.netfilter.nf_conntrack_max=", 4 * max)}};
}

Found abort_on_overflow(const DoctorFacts& facts, const DoctorLimits&) {
    const auto* settings = facts.look("network").first("tcp");
    if (settings == nullptr || settings->text("abort-on-overflow") != "1") return {};
    return {{Level::warning, "net.ipv4.tcp_abort_on_overflow", "1", "0"}};
}

Found listen_backlog(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto* settings = facts.look("network").first("tcp");
    const auto backlog = settings != nullptr ? settings->number("somaxconn") : std::nullopt;
    const auto least = limits.of("listen-backlog");
    if (!backlog || *backlog >= least) return {};
    return {{Level::warning, "net.core.somaxconn", cat(*backlog), cat("at least ", least),
             cat("sysctl net.core.somaxconn=", least)}};
}

/// Of "8080,29400-29500".
bool is_reserved(std::string_view list, std::int64_t port) {
    for (const auto range : split(list, ',')) {
        std::int64_t first = 0, last = 0;
        const auto dash = range.find('-');
        if (!parse_number(range.substr(0, dash), first)) continue;
        if (dash == std::string_view::npos)
            last = first;
        else if (!parse_number(range.substr(dash + 1), last))
            continue;
        if (port >= first && port <= last) return true;
    }
    return false;
}

Found port_range(const DoctorFacts& facts, const DoctorLimits&) {
    constexpr std::array<std::int64_t, 2> known_ports{29400, 29500};
    const auto* ports = facts.look("network").first("ports");
    const auto first = ports != nullptr ? ports->number("first") : std::nullopt;
    const auto last = ports != nullptr ? ports->number("last") : std::nullopt;
    if (!first || !last) return {};
    for (const auto port : known_ports) {
        if (port < *first || port > *last || is_reserved(ports->text("reserved"), port)) continue;
        return {{Level::warning, "net.ipv4.ip_local_port_range", cat(*first, " to ", *last),
                 "a range without 29400 and 29500, or these reserved"}};
    }
    return {};
}

}  // namespace

std::vector<Check> network_checks() {
    return {
        {"interface-speed", "network", "A link that negotiated a low speed slows the whole job down to it.",
         "check cable, transceiver and switch port; ethtool NAME", interface_speed},
        {"interface-mtu", "network",
         "Small packets cost CPU time, and different sizes on one path lose the large ones.",
         "ip link set NAME mtu 1500, or 9000 on all nodes and switches", interface_mtu},
        {"interface-errors", "network", "Damaged packets are sent again: the link is slow at times.",
         "check cable, transceiver and switch port", interface_errors},
        {"bond-members", "network", "A bond without one of its members has less bandwidth and no reserve.",
         "check cable and switch port of the member", bond_members},
        {"conntrack-table", "network", "A full table drops new connections without an error.",
         "sysctl net.netfilter.nf_conntrack_max=1048576", conntrack},
        {"tcp-abort-on-overflow", "network", "The store resets connections when many workers connect at once.",
         "sysctl net.ipv4.tcp_abort_on_overflow=0", abort_on_overflow},
        {"listen-backlog", "network", "Connections of many workers at once overflow the store's queue and are retried.",
         "sysctl net.core.somaxconn=4096", listen_backlog},
        {"port-range", "network", "The kernel may give the rendezvous' port to another connection before it starts.",
         "sysctl net.ipv4.ip_local_reserved_ports=29400,29500", port_range},
    };
}

}  // namespace muster::agent
