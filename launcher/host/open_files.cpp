#include "launcher/host/open_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/kernel/open_files.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t kept = 32;        // event loops, ports, the guardian, the first connections of a daemon
constexpr std::size_t per_worker = 10;  // both ends of pipes during the start, log files, the channel, the store client

/// PyTorch up to 2.0 opens a second, silent connection to the store for each worker.
constexpr std::size_t per_store_client = 2;

/// Connections that this node's store has, if it gets the round's: those of all workers, or one of each other node's
/// relay and those of the workers here.
std::size_t store_connections(const LaunchConfig& config) {
    const bool may_have_store = config.backend == Backend::c10d ? config.share_store : config.node_rank == 0;
    if (!may_have_store) return 0;
    const auto here = per_store_client * config.workers_per_node;
    return config.store_relay ? std::size_t{config.nodes_min} - 1 + here : config.nodes_min * here;
}

/// Connections of the agents, if the daemon may be here.
std::size_t daemon_connections(const LaunchConfig& config) {
    const bool may_host = config.is_host.value_or(config.backend != Backend::fixed || config.node_rank == 0);
    return may_host && (config.standalone || config.more_endpoints.empty()) ? config.nodes_min : 0;
}

std::string how_to_raise(std::size_t limit, std::size_t enough) {
    return cat("the limit of open files is ", limit, " (RLIMIT_NOFILE, hard). Raise it on every node: run `ulimit -n ",
               enough, "` as root in the shell that starts muster, or write LimitNOFILE=", enough, " into its unit");
}

}  // namespace

Result<void> check_open_files(const LaunchConfig& config) {
    const auto worker_count = config.workers_per_node;
    const auto limit = raise_open_files_limit();
    const auto needed = kept + per_worker * worker_count;
    const auto connections = store_connections(config) + daemon_connections(config);
    const auto enough = connections + needed;
    std::vector<FileDescriptor> taken;
    taken.reserve(needed);
    while (taken.size() < needed) {
        taken.emplace_back(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
        if (taken.back().valid()) continue;
        const auto available = taken.size() - 1;
        return Error{Errc::limit_exceeded, cat("cannot open enough files: ", errno_text(errno), ". ", worker_count,
                                               worker_count == 1 ? " worker needs " : " workers need ", needed,
                                               " descriptors, but ", available, " are available, and ",
                                               how_to_raise(limit, std::max(enough, limit + needed - available)))};
    }
    if (enough <= limit) return {};
    const bool may_relay = config.backend == Backend::c10d && !config.store_relay;
    return Error{Errc::limit_exceeded,
                 cat("cannot open enough files: the workers' store and the rendezvous need ", connections,
                     " connections (", config.nodes_min, " nodes with ", worker_count,
                     worker_count == 1 ? " worker" : " workers", " each), but ", how_to_raise(limit, enough),
                     may_relay ? "; or let the workers of a node share a connection (--store-relay)" : "")};
}

}  // namespace muster::launcher
