#include "worker_runtime/nccl/own_rank.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>

#include "rendezvous/base/kernel/boot_id.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr std::string_view good = "good\t";
constexpr std::string_view bad = "bad\t";

std::string link_target(const char* path) {
    char target[PATH_MAX];
    const auto size = ::readlink(path, target, sizeof target);
    return size > 0 ? std::string(target, static_cast<std::size_t>(size)) : std::string();
}

NcclRank own_rank(const NcclProcess* process) {
    NcclRank rank;
    rank.host = host_name();
    rank.kernel = boot_id();
    rank.pid_space = link_target("/proc/self/ns/pid");
    rank.pid = ::getpid();
    if (const char* const id = ::getenv("NCCL_HOSTID"); id != nullptr) rank.host_id = id;
    if (process != nullptr) {
        rank.device = process->device_name();
        rank.version = process->nccl().features.version;
    }
    return rank;
}

}  // namespace

Result<std::vector<NcclRank>> meet_ranks(const GroupTerms& group, const Result<std::shared_ptr<NcclProcess>>& process) {
    const NcclRank own = own_rank(process ? process->get() : nullptr);
    if (!group.place) {
        if (!process) return process.error();
        return std::vector<NcclRank>{own};
    }
    const auto wait = group.meeting_wait();
    if (!process) {
        const std::string text = cat(bad, "pid ", own.pid, " on ", own.host, ": ", process.error().context);
        // The other ranks wait for this rank's text, but this rank need not wait for theirs.
        auto told = group.place->publish(cat(group.id, "/nccl/identity/", group.rank), text, wait.deadline);
        return told ? process.error() : with_context(process.error(), told.error().context);
    }
    auto texts = MUSTER_TRY(exchange(group, "nccl/identity", cat(good, own.encode()), wait));
    std::vector<NcclRank> ranks;
    for (const auto& text : texts) {
        if (text.starts_with(bad)) {
            return Error{Errc::unsupported, cat("communicator ", group.id, ": rank ", ranks.size(),
                                                " cannot use NCCL: ", text.substr(bad.size()))};
        }
        ranks.push_back(MUSTER_TRY(NcclRank::decode(text.substr(std::min(good.size(), text.size())))));
    }
    return ranks;
}

}  // namespace muster::runtime
