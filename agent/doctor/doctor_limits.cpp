#include "agent/doctor/doctor_limits.h"

#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/system/config_text.h"
#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

std::span<const LimitRow> limit_table() {
    // Sources: shared practice of cluster checks (Azure NHC, LBNL NHC, gcm) and the needs of PyTorch's store.
    static constexpr LimitRow rows[] = {
        {"names-timeout-ms", 2500, "Deadline of the look at names."},
        {"network-timeout-ms", 2000, "Deadline of the look at interfaces and kernel settings."},
        {"firewall-timeout-ms", 2000, "Deadline of the look at the rules of the firewall."},
        {"system-timeout-ms", 2000, "Deadline of the look at limits, memory and kernel."},
        {"pci-timeout-ms", 2000, "Deadline of the look at PCI and RDMA devices."},
        {"kernel-log-timeout-ms", 2000, "Deadline of the look at the kernel log."},
        {"disks-timeout-ms", 3000, "Deadline of the look at one directory."},
        {"gpus-timeout-ms", 4500, "Deadline of the look at GPUs. A sleeping driver takes one or two seconds."},
        {"gpu-test-timeout-ms", 60000, "Deadline of the test of one GPU (--level 3), which usually takes 3 s."},
        {"gpu-between-timeout-ms", 60000, "Deadline of all copies between the GPUs of the node (--level 3)."},
        {"gpu-reduce-timeout-ms", 60000, "Deadline of the all_reduce between the GPUs of the node (--level 3)."},
        {"dcgm-timeout-ms", 60000, "Deadline of dcgmi diag -r 1 (--level 3), where it is installed."},
        {"rdma-write-timeout-ms", 60000,
         "Deadline of ib_write_bw on all RDMA ports (--level 3), where it is installed."},
        {"lookup-ms", 1000, "The resolver should know a name within this time."},
        {"interface-mbit", 1000, "The least speed of an interface with a link."},
        {"interface-mtu", 1400,
         "The least MTU of an interface with a link. Clouds have 1,400 to 1,500, RDMA networks 9,000."},
        {"interface-errors-ppm", 100, "Errors of an interface since its start, for each million packets."},
        {"conntrack-percent", 80, "The most that the kernel's connection table should be full."},
        {"listen-backlog", 4096, "The least net.core.somaxconn."},
        {"roce-mtu", 4200, "The least MTU of the interface of a RoCE port; 4,200 allows an RDMA MTU of 4,096."},
        {"rdma-write-percent", 60, "RDMA writes of a port to itself should reach so much of the port's rate."},
        {"open-files", 1024, "The least soft limit of open files; the hard limit also needs 8 for each GPU and 1,000."},
        {"free-processes", 1024, "The least number of processes and threads that can still be started."},
        {"memory-mib-per-gpu", 4096,
         "The least memory limit of the control group, for each GPU that a job here may use."},
        {"shm-mib", 1024, "The least size of /dev/shm."},
        {"disk-free-mib", 1024, "The least free space of each directory."},
        {"disk-write-ms", 1000, "Writing and syncing 1 MiB should take at most this time."},
        {"gpu-count", 0, "The number of GPUs of this machine. 0: as many as there are PCI devices."},
        {"gpu-sram-corrected", 10000, "The most corrected errors of a GPU's SRAM since the driver was loaded."},
        {"gpu-throttle-samples", 6, "Of ten samples, so many with slowed clocks are a finding."},
        {"gpu-copy-percent", 60, "Copies of a GPU should reach so much of what its PCIe link or its memory promises."},
        {"gpu-sisters-percent", 85, "A GPU should reach so much of the speed of the other GPUs of its node."},
        {"gpu-gflops", 0, "The least speed of a GPU in products in f16. 0: no limit."},
        {"link-mbytes", 0, "The least bandwidth of a link between two nodes (level 2), in MB/s. 0: no limit."},
        {"link-slow-percent", 25,
         "A link should reach so much of the usual bandwidth (level 2), and a group of nodes half of that."},
        {"lost-permille", 3, "Of 1,000 TCP segments of the test that a node sends, so many may be lost (level 2)."},
        {"clock-ms", 1000, "Wall clocks of two nodes may differ by so much (level 2)."},
    };
    return rows;
}

std::int64_t DoctorLimits::of(std::string_view name) const {
    if (const auto found = changed_.find(name); found != changed_.end()) return found->second;
    const auto rows = limit_table();
    const auto row = std::ranges::find(rows, name, &LimitRow::name);
    MUSTER_CHECK(row != rows.end(), "no limit has this name: ", name);
    return row->value;
}

Result<DoctorLimits> parse_limits(std::string_view text) {
    const auto parsed = parse_config(text);
    if (!parsed.complaints.empty())
        return Error{Errc::invalid_argument,
                     cat("line ", parsed.complaints.front().line, ": ", parsed.complaints.front().why)};
    DoctorLimits limits;
    std::vector<std::string> known;
    for (const auto& row : limit_table()) known.emplace_back(row.name);
    for (const auto& entry : parsed.entries) {
        if (std::ranges::find(known, entry.key) == known.end()) {
            const auto near = nearest(entry.key, known);
            return Error{Errc::invalid_argument,
                         cat("line ", entry.line, ": there is no limit '", entry.key, "'",
                             near.empty() ? "; `muster doctor explain` lists all" : cat("; the nearest is ", near))};
        }
        std::int64_t value = 0;
        if (!parse_number(entry.value, value) || value < 0 || value > limit_value_max)
            return Error{Errc::invalid_argument, cat("line ", entry.line, ": ", entry.key, " is '", entry.value,
                                                     "'; write a whole number from 0 to ", limit_value_max)};
        limits.set(entry.key, value);
    }
    return limits;
}

}  // namespace muster::agent
