#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <optional>

#include "agent/probes/facts/fact_line.h"
#include "agent/probes/facts/looks.h"
#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/kernel/memory_limit.h"
#include "rendezvous/base/kernel/process_limit.h"
#include "rendezvous/base/system/python_packages.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

std::string in_words(rlim_t limit) {
    return limit == RLIM_INFINITY ? "unlimited" : cat(limit);
}

void print_limit(const char* name, decltype(RLIMIT_NOFILE) resource) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) == 0)
        print_fact(name, {{"soft", in_words(limit.rlim_cur)}, {"hard", in_words(limit.rlim_max)}});
}

/// The control group that has the least room.
void print_process_limit() {
    const auto limits = find_process_limits();
    std::optional<std::uint64_t> free;
    std::string name;
    for (const auto& group : limits.groups) {
        const auto left = group.max - std::min(group.max, group.count);
        if (free && *free <= left) continue;
        free = left;
        name = cat("pids.max = ", group.max, " of ", group.path);
    }
    // How many this user runs is not known; a limit that is low in itself is.
    if (limits.user_max && (!free || *limits.user_max < *free)) {
        free = limits.user_max;
        name = cat("RLIMIT_NPROC = ", *limits.user_max);
    }
    if (free) print_fact("processes", {{"free", cat(*free)}, {"limit", name}});
}

/// The lowest limit of the control groups.
void print_memory_limit() {
    std::optional<std::uint64_t> lowest;
    std::string path;
    for (const auto& group : memory_groups()) {
        std::uint64_t bytes = 0;
        // Without a limit v1 shows a number that no host has.
        constexpr std::uint64_t no_limit = std::uint64_t{1} << 60;
        if (!parse_number(first_line(cat(group.directory, '/', group.limit_file)), bytes) || bytes >= no_limit)
            continue;
        if (lowest && *lowest <= bytes) continue;
        lowest = bytes;
        path = group.directory;
    }
    if (lowest) print_fact("memory-limit", {{"bytes", cat(*lowest)}, {"path", path}});
}

/// The PyTorch of the active environment, else of the python3 in PATH: importing it takes seconds.
void print_torch_version() {
    for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX", "PATH"}) {
        const char* const value = ::getenv(variable);
        const std::string text(value != nullptr ? value : "");
        const auto packages = python_packages(variable == std::string_view("PATH") ? python_prefix(text) : text);
        const auto torch = packages.find("torch");
        if (torch != packages.end()) return print_fact("version", {{"of", "PyTorch"}, {"is", torch->second}});
    }
}

}  // namespace

void look_at_system() {
    print_limit("open-files", RLIMIT_NOFILE);
    print_limit("locked-memory", RLIMIT_MEMLOCK);
    print_limit("core", RLIMIT_CORE);
    print_process_limit();
    print_memory_limit();
    struct statvfs shm {};
    if (::statvfs("/dev/shm", &shm) == 0)
        print_fact("shm", {{"bytes", cat(std::uint64_t{shm.f_blocks} * shm.f_frsize)}});
    if (const auto scope = first_line("/proc/sys/kernel/yama/ptrace_scope"); !scope.empty())
        print_fact("ptrace-scope", {{"value", scope}});
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (::sched_getaffinity(0, sizeof mask, &mask) == 0) print_fact("cpus", {{"usable", cat(CPU_COUNT(&mask))}});
    utsname kernel{};
    if (::uname(&kernel) == 0) print_fact("version", {{"of", "kernel"}, {"is", kernel.release}});
    print_fact("version", {{"of", "muster"}, {"is", MUSTER_VERSION}});
    print_torch_version();
}

}  // namespace muster::agent
