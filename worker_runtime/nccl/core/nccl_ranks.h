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
    std::string pid_space{};  ///< process ids are comparable between ranks with the same value and kernel
    int pid = 0;
    std::string device{};   ///< PCI address of its GPU: "0000:3b:00.0"
    std::string host_id{};  ///< NCCL_HOSTID, which makes NCCL treat one host as several
    int version = 0;        ///< Version of the library.

    [[nodiscard]] std::string encode() const;
    static Result<NcclRank> decode(const std::string& text);
};

/// Returns a description such as "rank 3 (pid 4711 on gpu07)".
std::string who(const std::vector<NcclRank>& ranks, int rank);

/// Checks that these ranks can form a communicator. invalid_argument names two ranks with different libraries, or with
/// the same GPU: NCCL refuses that without naming the ranks. `shared_gpu`: NCCL_MULTI_RANK_GPU_ENABLE is set.
Result<void> check_ranks(const std::vector<NcclRank>& ranks, bool shared_gpu);

/// True if `a` can open a pidfd of `b`.
bool sees_process(const NcclRank& a, const NcclRank& b);

/// The progress of a rank.
struct NcclProgress {
    std::uint64_t number = 0;  ///< Number of its current collective, from 1. 0 while the communicator is being made.
    std::string what;          ///< "all_reduce sum f32 x 1024"
    bool left = false;         ///< It has closed the communicator.

    [[nodiscard]] std::string encode() const;
    static Result<NcclProgress> decode(const std::string& text);
};

/// Explains a collective that did not end: ranks that have not reached it or run another operation. `all` is in rank
/// order and includes `own`. Example: "rank 1 (pid 4711 on gpu07) has not reached it (last seen in operation 3:
/// barrier)".
std::string explain(const std::vector<NcclRank>& ranks, const std::vector<NcclProgress>& all, int own);

}  // namespace muster::runtime
