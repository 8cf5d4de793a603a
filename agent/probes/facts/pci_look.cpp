#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "agent/probes/facts/fact_line.h"
#include "agent/probes/facts/looks.h"
#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& directory) {
    std::vector<std::string> names;
    std::error_code failure;
    for (fs::directory_iterator at(directory, failure), end; !failure && at != end; at.increment(failure))
        names.push_back(at->path().filename().string());
    std::ranges::sort(names);
    return names;
}

/// "4: ACTIVE" -> "ACTIVE".
std::string behind_colon(const std::string& text) {
    return std::string(trim(std::string_view(text).substr(text.find(':') + 1)));
}

/// "GPU", "NIC" or nothing.
std::string kind_of(const std::string& device) {
    const auto code = first_line(device + "/class");
    if (code.starts_with("0x0200") || code.starts_with("0x0207")) return "NIC";
    const bool computes = code.starts_with("0x0300") || code.starts_with("0x0302");
    return computes && first_line(device + "/vendor") == "0x10de" ? "GPU" : std::string();
}

/// The extended configuration space of a bridge says whether ACS redirects requests between the devices below it.
enum class Acs { off, redirects, unreadable };
Acs acs_of(const fs::path& bridge) {
    constexpr std::size_t extended = 0x100, for_everyone = 64;
    constexpr unsigned acs_capability = 0x0d, control = 6;
    constexpr unsigned redirects = 1U << 2 | 1U << 3;  // of requests and of completions
    const auto space = read_file((bridge / "config").string());
    if (space.size() <= for_everyone) return Acs::unreadable;
    const auto word = [&space](std::size_t at) {
        unsigned value = 0;
        for (std::size_t i = 0; i < 4 && at + i < space.size(); ++i)
            value |= static_cast<unsigned>(static_cast<unsigned char>(space[at + i])) << 8 * i;
        return value;
    };
    std::set<std::size_t> seen;
    for (std::size_t at = extended; at >= extended && at + 8 <= space.size() && seen.insert(at).second;) {
        const auto header = word(at);
        if ((header & 0xffff) == acs_capability)
            return (word(at + 4) >> 16 & redirects) != 0 ? Acs::redirects : Acs::off;
        static_assert(control == 4 + 2);
        at = header >> 20;
    }
    return Acs::off;
}

/// The bridges above a device, nearest first: the folders above it that are PCI devices too.
std::vector<fs::path> bridges_above(const fs::path& device) {
    std::vector<fs::path> bridges;
    std::error_code failure;
    for (auto at = device.parent_path(); fs::exists(at / "class", failure) && !failure; at = at.parent_path())
        bridges.push_back(at);
    return bridges;
}

void print_bridges(const std::vector<fs::path>& devices) {
    std::set<fs::path> seen;
    std::size_t unread_count = 0;
    for (const auto& device : devices)
        for (const auto& bridge : bridges_above(device)) {
            if (!seen.insert(bridge).second) continue;
            const auto acs = acs_of(bridge);
            if (acs == Acs::unreadable) ++unread_count;
            if (acs == Acs::redirects) print_fact("acs", {{"address", bridge.filename().string()}});
        }
    if (unread_count > 0) print_fact("acs-unread", {{"count", cat(unread_count)}});
}

void print_devices() {
    const std::string all = "/sys/bus/pci/devices";
    std::vector<fs::path> devices;
    bool has_gpu = false;
    for (const auto& address : names_in(all)) {
        const auto at = cat(all, '/', address);
        const auto kind = kind_of(at);
        if (kind.empty()) continue;
        has_gpu = has_gpu || kind == "GPU";
        std::error_code failure;
        const auto place = fs::canonical(at, failure);
        const auto bridges = failure ? std::vector<fs::path>() : bridges_above(place);
        devices.push_back(place);
        print_fact("device", {{"address", address},
                              {"kind", kind},
                              {"nvidia", kind == "GPU" ? "1" : "0"},
                              {"width", first_line(at + "/current_link_width")},
                              {"width-max", first_line(at + "/max_link_width")},
                              {"bridge-width-max",
                               bridges.empty() ? "" : first_line((bridges.front() / "max_link_width").string())},
                              {"iommu", first_line(at + "/iommu_group/type")}});
    }
    if (has_gpu) print_bridges(devices);  // without a GPU nothing copies between devices
}

const std::string rdma_devices = "/sys/class/infiniband";

/// The addresses of a RoCE port that are set. A connection uses one of them, by its index. Nothing where the kernel
/// does not tell their types.
void print_gids(const std::string& device, const std::string& port) {
    constexpr int gids_max = 256;
    const auto at = cat(rdma_devices, '/', device, "/ports/", port);
    std::string list;
    for (int index = 0; index < gids_max; ++index) {
        const auto gid = first_line(cat(at, "/gids/", index));
        if (gid.empty()) break;
        if (gid.find_first_not_of("0:") == std::string::npos) continue;
        const auto type = first_line(cat(at, "/gid_attrs/types/", index));
        if (type.empty()) return;
        list += cat(list.empty() ? "" : ",", index, ':', type);
    }
    print_fact("gids", {{"device", device}, {"port", port}, {"list", list}});
}

/// Of all RoCE ports. They come last, because they are many where a card has virtual functions.
void print_all_gids() {
    for (const auto& device : names_in(rdma_devices)) {
        // Not of iWARP, which has Ethernet, too.
        if (!first_line(cat(rdma_devices, '/', device, "/node_type")).starts_with("1:")) continue;
        for (const auto& port : names_in(cat(rdma_devices, '/', device, "/ports")))
            if (first_line(cat(rdma_devices, '/', device, "/ports/", port, "/link_layer")) == "Ethernet")
                print_gids(device, port);
    }
}

void print_rdma_ports() {
    const auto& all = rdma_devices;
    for (const auto& device : names_in(all)) {
        const auto interfaces = names_in(cat(all, '/', device, "/device/net"));
        const auto interface = interfaces.empty() ? std::string() : interfaces.front();
        if (const auto firmware = first_line(cat(all, '/', device, "/fw_ver")); !firmware.empty())
            print_fact("version", {{"of", cat("firmware of ", device)}, {"is", firmware}});
        for (const auto& port : names_in(cat(all, '/', device, "/ports"))) {
            const auto at = cat(all, '/', device, "/ports/", port);
            print_fact(
                "rdma-port",
                {{"device", device},
                 {"port", port},
                 {"state", behind_colon(first_line(at + "/state"))},
                 {"phys", behind_colon(first_line(at + "/phys_state"))},
                 {"layer", first_line(at + "/link_layer")},
                 {"rate", first_line(at + "/rate")},
                 {"downed", first_line(at + "/counters/link_downed")},
                 {"interface", interface},
                 {"mtu",
                  interface.empty() ? "" : first_line(cat(all, '/', device, "/device/net/", interface, "/mtu"))}});
        }
    }
}

}  // namespace

void look_at_pci() {
    print_rdma_ports();
    print_devices();
    if (read_file("/proc/cpuinfo").find(" hypervisor") != std::string::npos) print_fact("virtual", {{"value", "1"}});
    std::error_code ignored;
    if (fs::exists("/sys/module/nvidia", ignored)) {
        const bool is_open = read_file("/proc/driver/nvidia/version").find("Open Kernel Module") != std::string::npos;
        print_fact("gpu-module", {{"peermem", fs::exists("/sys/module/nvidia_peermem", ignored) ? "1" : "0"},
                                  {"open", is_open ? "1" : "0"}});
    }
    print_all_gids();
}

}  // namespace muster::agent
