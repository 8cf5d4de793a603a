// RDMA ports, PCI links and what lies between GPUs and NICs.
#include <algorithm>

#include "agent/doctor/check_table.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Found = std::vector<Measured>;

bool is_virtual(const DoctorFacts& facts) {
    return facts.look("pci").first("virtual") != nullptr;
}

/// Whether two devices could copy to each other: GPUs, or a GPU and an InfiniBand port.
bool may_copy_directly(const DoctorFacts& facts) {
    const auto devices = facts.look("pci").all("device");
    const auto gpus = std::ranges::count_if(devices, [](const auto* one) { return one->text("kind") == "GPU"; });
    return !is_virtual(facts) && (gpus > 1 || (gpus == 1 && active_infiniband(facts) != nullptr));
}

std::string port_of(const FactRecord& port) {
    return cat(port.text("device"), " port ", port.text("port"));
}

Found rdma_port(const DoctorFacts& facts, const DoctorLimits&) {
    Found found;
    for (const auto* port : facts.look("pci").all("rdma-port")) {
        if (port->text("state") == "ACTIVE") continue;
        const bool has_link = port->text("phys") == "LinkUp";
        const bool was_up = port->number("downed").value_or(0) > 0;
        if (has_link)  // the cable is there
            found.push_back({Level::warning, port_of(*port), cat(port->text("state"), ", link up"), "ACTIVE",
                             "is the subnet manager running? sminfo; systemctl status opensm"});
        else if (was_up)
            found.push_back(
                {Level::critical, port_of(*port),
                 cat(port->text("state"), ", ", port->text("phys"), "; lost its link ", port->text("downed"), " times"),
                 "ACTIVE"});
    }
    return found;
}

Found roce_mtu(const DoctorFacts& facts, const DoctorLimits& limits) {
    Found found;
    const auto least = limits.of("roce-mtu");
    for (const auto* port : facts.look("pci").all("rdma-port")) {
        const auto mtu = port->number("mtu");
        if (port->text("layer") != "Ethernet" || port->text("state") != "ACTIVE" || !mtu || *mtu >= least) continue;
        found.push_back({Level::info, cat(port->text("interface"), ", the interface of ", port_of(*port)),
                         cat("MTU ", *mtu), cat("at least ", least),
                         cat("ip link set ", port->text("interface"), " mtu 9000, on all nodes and switches")});
    }
    return found;
}

/// What ib_write_bw measured from each port to itself.
Found rdma_write(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto whole = [](const std::string& text) {
        std::int64_t number = 0;
        return parse_number(std::string_view(text).substr(0, text.find_first_of(". ")), number) ? number : 0;
    };
    Found found;
    for (const auto* port : facts.look("rdma-write").all("written")) {
        if (const auto downs = port->number("downs").value_or(0); downs > 0)
            found.push_back({Level::warning, port_of(*port), cat("lost its link ", downs, " times during the writes"),
                             "none", "check the cable and its plugs; ibdiagnet"});
        const auto rate = whole(port->text("rate"));
        const auto least = rate * limits.of("rdma-write-percent") / 100;
        if (port->text("gbits").empty()) {
            found.push_back({Level::warning, port_of(*port), cat("ib_write_bw failed: ", port->text("text")),
                             "a result", "see locked-memory and /dev/infiniband; ibv_devinfo"});
            continue;
        }
        const auto speed = whole(port->text("gbits"));
        found.push_back({speed < least ? Level::warning : Level::info, port_of(*port),
                         cat(speed, " Gbit/s in RDMA writes of the port to itself"),
                         cat("at least ", least, " Gbit/s, ", limits.of("rdma-write-percent"), " % of its rate")});
    }
    return found;
}

/// The width that device and bridge both have. Speeds are not compared: an idle GPU lowers its own.
Found pci_link(const DoctorFacts& facts, const DoctorLimits&) {
    Found found;
    for (const auto* device : facts.look("pci").all("device")) {
        const auto now = device->number("width").value_or(0), max = device->number("width-max").value_or(0);
        const auto bridge = device->number("bridge-width-max").value_or(0);
        // Without a bridge, as in a virtual machine, it is not known how many lanes the slot has.
        if (is_virtual(facts) || bridge <= 0 || now <= 0 || now >= std::min(max, bridge)) continue;
        found.push_back({Level::warning, cat(device->text("kind"), " ", device->text("address")), cat("x", now),
                         cat("x", std::min(max, bridge))});
    }
    return found;
}

Found pci_acs(const DoctorFacts& facts, const DoctorLimits&) {
    Found found;
    // In a virtual machine the host decides, and some hypervisors need ACS.
    if (!may_copy_directly(facts)) return found;
    for (const auto* bridge : facts.look("pci").all("acs"))
        found.push_back({Level::warning, cat("the bridge ", bridge->text("address")), "ACS redirects requests", "off",
                         cat("setpci -s ", bridge->text("address"), " ECAP_ACS+0x6.w=0000")});
    if (const auto* unread = facts.look("pci").first("acs-unread"))
        found.push_back({Level::info, cat(unread->text("count"), " bridges above GPUs and NICs"),
                         "not looked at: only root may read their settings", "ACS off", "run muster doctor as root"});
    return found;
}

Found iommu(const DoctorFacts& facts, const DoctorLimits&) {
    Found found;
    if (!may_copy_directly(facts)) return found;
    for (const auto* device : facts.look("pci").all("device"))
        if (device->text("kind") == "GPU" && device->text("iommu").starts_with("DMA"))
            found.push_back({Level::warning, cat("GPU ", device->text("address")),
                             cat("IOMMU translates (", device->text("iommu"), ")"), "identity"});
    return found;
}

Found gpudirect(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("pci");
    const auto devices = look.all("device");
    const bool has_gpu = std::ranges::any_of(devices, [](const auto* one) { return one->text("kind") == "GPU"; });
    const auto* driver = look.first("gpu-module");
    if (!has_gpu || look.first("rdma-port") == nullptr || driver == nullptr) return {};
    if (driver->text("peermem") == "1" || driver->text("open") == "1") return {};
    return {{Level::info, "GPUDirect RDMA", "neither nvidia_peermem nor the open driver", "one of them"}};
}

}  // namespace

std::vector<Check> device_checks() {
    return {
        {"rdma-port", "pci", "NCCL uses the other ports, or TCP: the job is slower, or it fails at the start.",
         "check the cable; ibstat; ibdiagnet", rdma_port},
        {"roce-mtu", "pci", "RDMA packets become small, and nodes with different sizes fail with a local access error.",
         "ip link set NAME mtu 9000", roce_mtu},
        {"rdma-write", "rdma-write", "Collectives between nodes are as slow as the slowest port, or fail.",
         "check pci-link, the port's firmware and its PCIe slot; ib_write_bw -d DEVICE --report_gbits", rdma_write},
        {"pci-link", "pci", "A device with fewer lanes copies slowly, and every collective waits for it.",
         "reseat the card or the riser; lspci -vv -s ADDRESS | grep LnkSta", pci_link},
        {"pci-acs", "pci", "Copies between GPUs and NICs take the way through the CPU.", "switch ACS off in the BIOS",
         pci_acs},
        {"iommu", "pci", "Copies between GPUs and NICs take the way through the CPU.",
         "add iommu=pt to the kernel's command line, and reboot", iommu},
        {"gpudirect", "pci", "NICs then read GPU memory through a copy in host memory.", "modprobe nvidia_peermem",
         gpudirect},
    };
}

}  // namespace muster::agent
