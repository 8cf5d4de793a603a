#include "worker_runtime/nccl/core/nccl_roots.h"

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

NcclRoots NcclRoots::for_world(int size, int ranks_per_root) {
    MUSTER_CHECK(size >= 1 && ranks_per_root >= 1, size, ranks_per_root);
    return {.size = size, .count = (size + ranks_per_root - 1) / ranks_per_root};
}

int NcclRoots::held_by(int rank) const {
    MUSTER_CHECK(rank >= 0 && rank < size, rank, size);
    // The first `larger` blocks have one rank more than the others.
    const int block = size / count;
    const int larger = size % count;
    const int in_larger = larger * (block + 1);
    if (rank < in_larger) return rank % (block + 1) == 0 ? rank / (block + 1) : -1;
    const int beyond = rank - in_larger;
    return beyond % block == 0 ? larger + beyond / block : -1;
}

std::string nccl_root_key(std::string_view group, int root) {
    return cat(group, "/nccl/root/", root);
}

std::vector<std::string> nccl_root_keys(std::string_view group, const NcclRoots& roots) {
    std::vector<std::string> keys;
    for (int root = 0; root < roots.count; ++root) keys.push_back(nccl_root_key(group, root));
    return keys;
}

}  // namespace muster::runtime
