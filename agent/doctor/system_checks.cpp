// Names, limits, memory, kernel and disks of this node.
#include <algorithm>

#include "agent/doctor/check_table.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Found = std::vector<Measured>;

constexpr std::int64_t mib = std::int64_t{1} << 20;

std::string in_mib(std::int64_t bytes) {
    return cat(bytes / mib, " MiB");
}

/// Names that resolve to loopback while this host has another address: a host of its own needs none.
Found own_name(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("names");
    const auto* name = look.first("name");
    if (name == nullptr) return {};
    const auto addresses = look.all("address");
    const auto subject = cat("the host name '", name->text("host"), "'");
    if (!name->text("failure").empty())
        return {{Level::warning, subject, cat("does not resolve: ", name->text("failure")), "an address of this host"}};
    const auto is_loopback = [](const FactRecord* one) { return one->text("loopback") == "1"; };
    if (addresses.empty() || look.first("other-address") == nullptr || !std::ranges::all_of(addresses, is_loopback))
        return {};
    return {{Level::warning, subject, cat("resolves to ", addresses.front()->text("value")),
             cat("an address that other nodes reach, e.g. ", look.first("other-address")->text("value")),
             cat("write '", look.first("other-address")->text("value"), " ", name->text("host"),
                 "' into /etc/hosts in place of the line with ", addresses.front()->text("value"))}};
}

Found lookup_time(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto* name = facts.look("names").first("name");
    const auto took = name != nullptr ? name->number("ms") : std::nullopt;
    const auto most = limits.of("lookup-ms");
    if (!took || *took <= most) return {};
    return {{Level::warning, cat("the lookup of '", name->text("host"), "'"), cat("took ", *took, " ms"),
             cat("at most ", most, " ms")}};
}

Found name_route(const DoctorFacts& facts, const DoctorLimits&) {
    Found found;
    for (const auto* address : facts.look("names").all("address"))
        if (address->text("reachable") == "0")
            found.push_back({Level::warning, cat("the address ", address->text("value"), " of this host's name"),
                             cat("has no route: ", address->text("failure")), "a route to each address"});
    return found;
}

Found open_files(const DoctorFacts& facts, const DoctorLimits& limits) {
    constexpr std::int64_t for_the_launcher = 1000, for_each_worker = 8;
    const auto* files = facts.look("system").first("open-files");
    if (files == nullptr) return {};
    const auto workers = std::max<std::size_t>(1, facts.look("gpus").all("gpu").size());
    const auto hard_min = for_each_worker * static_cast<std::int64_t>(workers) + for_the_launcher;
    const auto soft_min = limits.of("open-files");
    const auto soft = files->number("soft").value_or(soft_min), hard = files->number("hard").value_or(hard_min);
    if (soft >= soft_min && hard >= hard_min) return {};
    const auto wanted = std::max(hard_min, soft_min);
    return {{Level::warning, "the limit of open files", cat(soft, " (soft), ", hard, " (hard)"),
             cat("at least ", soft_min, " (soft), ", hard_min, " (hard)"),
             cat("ulimit -n ", wanted, ", or LimitNOFILE=", wanted, " in the unit, or '* - nofile ", wanted,
                 "' in /etc/security/limits.conf")}};
}

Found locked_memory(const DoctorFacts& facts, const DoctorLimits&) {
    const auto* locked = facts.look("system").first("locked-memory");
    if (locked == nullptr || locked->text("soft") == "unlimited" || active_infiniband(facts) == nullptr) return {};
    return {{Level::warning, "the limit of locked memory", cat(locked->text("soft"), " bytes"),
             "unlimited, because this node has RDMA devices"}};
}

Found process_limit(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto* processes = facts.look("system").first("processes");
    const auto free = processes != nullptr ? processes->number("free") : std::nullopt;
    const auto least = limits.of("free-processes");
    if (!free || *free >= least) return {};
    return {{Level::warning, "processes and threads that can still be started",
             cat(*free, " (", processes->text("limit"), ")"), cat("at least ", least)}};
}

Found memory_limit(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto* group = facts.look("system").first("memory-limit");
    const auto bytes = group != nullptr ? group->number("bytes") : std::nullopt;
    const auto gpus = static_cast<std::int64_t>(usable_gpus(facts).size()), for_each = limits.of("memory-mib-per-gpu");
    if (!bytes || *bytes >= gpus * for_each * mib) return {};
    return {{Level::warning, cat("the memory limit of ", group->text("path")), in_mib(*bytes),
             cat("at least ", in_mib(gpus * for_each * mib), ", ", for_each, " MiB for each of ", gpus,
                 gpus == 1 ? " GPU" : " GPUs", " of this job")}};
}

Found shared_memory(const DoctorFacts& facts, const DoctorLimits& limits) {
    const auto* shm = facts.look("system").first("shm");
    const auto bytes = shm != nullptr ? shm->number("bytes") : std::nullopt;
    const auto least = limits.of("shm-mib");
    if (!bytes || *bytes >= least * mib) return {};
    const bool is_dockers = *bytes == 64 * mib;
    return {{Level::warning, "/dev/shm", cat(in_mib(*bytes), is_dockers ? " (Docker's default)" : ""),
             cat("at least ", least, " MiB"),
             cat(is_dockers ? "docker run --ipc=host, or --shm-size=8g; in Kubernetes an emptyDir with medium Memory"
                            : "mount -o remount,size=8G /dev/shm")}};
}

Found core_limit(const DoctorFacts& facts, const DoctorLimits&) {
    const auto* core = facts.look("system").first("core");
    if (core == nullptr || core->text("soft") != "0") return {};
    return {{Level::info, "the limit of core dumps", "0", "unlimited where crashes are examined"}};
}

Found ptrace_scope(const DoctorFacts& facts, const DoctorLimits&) {
    const auto* scope = facts.look("system").first("ptrace-scope");
    if (scope == nullptr || scope->number("value").value_or(0) < 3) return {};
    return {{Level::warning, "kernel.yama.ptrace_scope", scope->text("value"), "at most 2"}};
}

Found versions(const DoctorFacts& facts, const DoctorLimits&) {
    Found found;
    for (const char* look : {"system", "gpus", "pci"})
        for (const auto* one : facts.look(look).all("version"))
            found.push_back({Level::info, one->text("of"), one->text("is"), "the same on all nodes"});
    return found;
}

/// The disk looks, by path.
Found for_each_disk(const DoctorFacts& facts, auto judge) {
    Found found;
    for (const auto& [name, look] : facts.looks)
        if (name.starts_with("disks"))
            for (const auto* disk : look.all("disk"))
                if (auto one = judge(*disk)) found.push_back(*std::move(one));
    return found;
}

Found disk_space(const DoctorFacts& facts, const DoctorLimits& limits) {
    return for_each_disk(facts, [&](const FactRecord& disk) -> std::optional<Measured> {
        const auto free = disk.number("free");
        const auto least = limits.of("disk-free-mib");
        const auto inodes = disk.number("free-inodes").value_or(-1);
        const bool no_inodes = inodes == 0 && disk.number("inodes").value_or(0) > 0;
        if (!free || (*free >= least * mib && !no_inodes)) return std::nullopt;
        const bool is_full = *free < mib || no_inodes;
        return Measured{is_full ? Level::critical : Level::warning, disk.text("path"),
                        no_inodes ? "no free inodes" : cat(in_mib(*free), " free"),
                        cat("at least ", least, " MiB free")};
    });
}

Found disk_write(const DoctorFacts& facts, const DoctorLimits& limits) {
    return for_each_disk(facts, [&](const FactRecord& disk) -> std::optional<Measured> {
        const auto& failure = disk.text("failure");
        const bool is_full = disk.number("free").value_or(mib) < mib;
        if (!failure.empty()) {
            if (is_full) return std::nullopt;  // disk-space reports it
            return Measured{Level::critical, disk.text("path"), cat("cannot be written: ", failure),
                            "1 MiB can be written and synced",
                            failure == "No such file or directory" ? "make the directory, or name another one" : ""};
        }
        const auto took = disk.number("ms");
        const auto most = limits.of("disk-write-ms");
        if (!took || *took <= most) return std::nullopt;
        return Measured{Level::warning, disk.text("path"), cat("wrote and synced 1 MiB in ", *took, " ms"),
                        cat("at most ", most, " ms")};
    });
}

}  // namespace

std::vector<Check> system_checks() {
    return {
        {"own-name", "names", "Processes give this name or its address to their peers, who then connect to themselves.",
         "write this host's address and name into /etc/hosts", own_name},
        {"lookup-time", "names", "Each worker resolves names at its start; a slow resolver delays every restart.",
         "remove dead servers from /etc/resolv.conf, or write the nodes into /etc/hosts", lookup_time},
        {"name-route", "names", "A peer that tries this address first waits for its timeout.",
         "remove the address from /etc/hosts or DNS, or add the route", name_route},
        {"open-files", "system", "Each worker and each connection of the store takes descriptors.", "ulimit -n 65536",
         open_files},
        {"locked-memory", "system", "RDMA registers memory by locking it; NCCL fails with 'ibv_reg_mr ... failed'.",
         "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit", locked_memory},
        {"process-limit", "system", "PyTorch and NCCL start hundreds of threads in each worker.",
         "raise pids.max of the control group (docker --pids-limit, TasksMax=) or ulimit -u", process_limit},
        {"memory-limit", "system",
         "A worker with PyTorch and CUDA holds some GiB of host memory. The kernel kills it at the limit.",
         "raise the memory limit of the job (Slurm --mem=0, Kubernetes resources.limits.memory)", memory_limit},
        {"shared-memory", "system", "Data loaders and NCCL keep buffers there; a full one ends workers with SIGBUS.",
         "mount -o remount,size=8G /dev/shm", shared_memory},
        {"core-limit", "system", "Without core dumps a crash leaves only its log.", "ulimit -c unlimited", core_limit},
        {"ptrace-scope", "system", "muster cannot read the stacks of a worker that hangs.",
         "sysctl kernel.yama.ptrace_scope=1 (3 needs a reboot)", ptrace_scope},
        {"versions", "system", "Nodes with different libraries fail in ways that name neither.",
         "install the same version on all nodes", versions},
        {"disk-space", "disks", "A full disk ends a checkpoint in the middle, and logs stop.",
         "free some space: du -xsh DIR/*", disk_space},
        {"disk-write", "disks", "Checkpoints and logs wait for this disk.",
         "see dmesg, mount and the quota of the user", disk_write},
    };
}

}  // namespace muster::agent
