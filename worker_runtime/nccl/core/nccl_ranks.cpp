#include "worker_runtime/nccl/core/nccl_ranks.h"

#include <map>
#include <string_view>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/core/nccl_version.h"

namespace muster::runtime {

namespace {

/// The number of ranks that a message names at most.
constexpr std::size_t named_max = 8;

Error unreadable(std::string_view what, const std::string& text) {
    return {Errc::bad_frame, cat("the store holds no ", what, ": \"", text.substr(0, 80), "\"")};
}

/// Describes where another rank is in its collectives, compared with this rank.
std::string difference(const NcclProgress& own, const NcclProgress& other) {
    if (other.left) return "has closed the communicator";
    if (other.number < own.number) {
        // Ranks publish progress only sometimes: one that stopped early may have run unpublished operations.
        if (other.number == 0) return "has not reached it (no operation seen)";
        return cat("has not reached it (last seen in operation ", other.number, ": ", other.what, ")");
    }
    if (other.number == own.number && other.what != own.what) return cat("runs ", other.what, " instead");
    return "";
}

}  // namespace

std::string NcclRank::encode() const {
    return join({host, kernel, pid_space, cat(pid), device, host_id, cat(version)}, "\t");
}

Result<NcclRank> NcclRank::decode(const std::string& text) {
    const auto parts = split(text, '\t');
    NcclRank rank;
    if (parts.size() != 7 || !parse_number(parts[3], rank.pid) || !parse_number(parts[6], rank.version)) {
        return unreadable("description of an NCCL rank", text);
    }
    rank.host = parts[0];
    rank.kernel = parts[1];
    rank.pid_space = parts[2];
    rank.device = parts[4];
    rank.host_id = parts[5];
    return rank;
}

std::string who(const std::vector<NcclRank>& ranks, int rank) {
    const auto& one = ranks[static_cast<std::size_t>(rank)];
    return cat("rank ", rank, " (pid ", one.pid, " on ", one.host, ")");
}

Result<void> check_ranks(const std::vector<NcclRank>& ranks, bool shared_gpu) {
    std::map<std::string, int> users;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
        const auto& one = ranks[static_cast<std::size_t>(rank)];
        if (one.version != ranks.front().version) {
            return Error{Errc::invalid_argument,
                         cat(who(ranks, 0), " has NCCL ", nccl_version_text(ranks.front().version), ", but ",
                             who(ranks, rank), " has ", nccl_version_text(one.version),
                             ": give all ranks the same library (MUSTER_NCCL_LIBRARY)")};
        }
        const auto [first, fresh] = users.emplace(join({one.kernel, one.host_id, one.device}, "\t"), rank);
        if (!fresh && !shared_gpu) {
            return Error{Errc::invalid_argument,
                         cat(who(ranks, first->second), " and ", who(ranks, rank), " both use GPU ", one.device,
                             ": start no more workers than the host has GPUs, or let each see its own "
                             "(CUDA_VISIBLE_DEVICES)")};
        }
    }
    return {};
}

bool sees_process(const NcclRank& a, const NcclRank& b) {
    return a.kernel == b.kernel && a.pid_space == b.pid_space;
}

std::string NcclProgress::encode() const {
    return cat(left ? "left" : "in", "\t", number, "\t", what);
}

Result<NcclProgress> NcclProgress::decode(const std::string& text) {
    const auto parts = split(text, '\t');
    NcclProgress progress;
    if (parts.size() != 3 || !parse_number(parts[1], progress.number)) return unreadable("progress", text);
    progress.left = parts[0] == "left";
    progress.what = parts[2];
    return progress;
}

std::string explain(const std::vector<NcclRank>& ranks, const std::vector<NcclProgress>& all, int own) {
    std::vector<std::string> found;
    for (int rank = 0; rank < static_cast<int>(all.size()) && found.size() <= named_max; ++rank) {
        const auto words = difference(all[static_cast<std::size_t>(own)], all[static_cast<std::size_t>(rank)]);
        if (!words.empty()) found.push_back(cat(who(ranks, rank), " ", words));
    }
    if (found.empty()) return "all ranks have reached it: the GPUs, or the network between them, make no progress";
    if (found.size() > named_max) found.back() = "others too";
    return join(found, "; ");
}

}  // namespace muster::runtime
