// What the ranks of an NCCL communicator exchange through the store: first their identities, and, while an operation
// takes long, their progress. NCCL itself names no rank, so errors are built from these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

struct NcclRank {
    std::string host{};       ///< For messages.
    std::string kernel{};     ///< boot id
    std::string pid_space{};  ///< process numbers mean the same to ranks that have this and the kernel in common
    int pid = 0;
    std::string device{};   ///< PCI address of its GPU: "0000:3b:00.0"
    std::string host_id{};  ///< NCCL_HOSTID, by which NCCL is made to take one host for several
    int version = 0;        ///< Version of the library.

    [[nodiscard]] std::string encode() const;
    static Result<NcclRank> decode(const std::string& text);
};

/// "rank 3 (pid 4711 on gpu07)".
std::string who(const std::vector<NcclRank>& ranks, int rank);

/// Why these cannot make a communicator: libraries that differ, or one GPU for two of them, which NCCL refuses without
/// saying whose. `shared_gpu`: NCCL_MULTI_RANK_GPU_ENABLE is set. invalid_argument names both ranks.
Result<void> check_ranks(const std::vector<NcclRank>& ranks, bool shared_gpu);

/// Can `a` hold a pidfd of `b`?
bool sees_process(const NcclRank& a, const NcclRank& b);

/// How far a rank has come.
struct NcclProgress {
    std::uint64_t number = 0;  ///< Number of its current collective, from 1. 0 while the communicator is being made.
    std::string what;          ///< "all_reduce sum f32 x 1024"
    bool left = false;         ///< It has closed the communicator.

    [[nodiscard]] std::string encode() const;
    static Result<NcclProgress> decode(const std::string& text);
};

/// What has become of a collective that did not end: who has not come, who does something else. `all` in rank order,
/// `own` included. "rank 1 (pid 4711 on gpu07) has not reached it (last seen in operation 3: barrier)".
std::string explain(const std::vector<NcclRank>& ranks, const std::vector<NcclProgress>& all, int own);

}  // namespace muster::runtime
