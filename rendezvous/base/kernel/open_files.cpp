#include "rendezvous/base/kernel/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "rendezvous/base/kernel/memory_limit.h"

namespace muster {

namespace {

// What the process holds for a connection without any request; measured: 1.2 KiB.
constexpr std::size_t connection_bytes = 4096;

}  // namespace

std::size_t raise_open_files_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
    return static_cast<std::size_t>(limit.rlim_cur);
}

std::size_t connections_allowed() {
    rlimit limit{};
    const std::size_t files = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
    const auto free = files > 2 * descriptors_kept ? files - descriptors_kept : files / 2;
    return std::min(free, memory_budget_bytes() / connection_bytes);
}

}  // namespace muster
