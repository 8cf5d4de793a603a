#include "worker_runtime/checkpoint/replicas.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/agreement.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

constexpr std::size_t named_ranks_max = 8;

/// A part is still in the cache of the core that has filled it when its checksum is computed.
constexpr std::size_t part_bytes_max = 1U << 20U;

Result<std::uint32_t> checksum_of(const StateTensor& tensor, const FillPart& fill) {
    std::string head = cat(tensor.name, '\n', name(tensor.type));
    for (const auto size : tensor.shape) head += cat(' ', size);
    auto sum = crc32c(std::as_bytes(std::span(head)));
    std::span rest(static_cast<std::byte*>(tensor.data), *element_count(tensor.shape) * size_of(tensor.type));
    while (!rest.empty()) {
        const auto part = rest.first(std::min(rest.size(), part_bytes_max));
        if (fill) MUSTER_TRY(fill(part));
        sum = crc32c(part, sum);
        rest = rest.subspan(part.size());
    }
    return sum;
}

std::string description_of(const std::vector<std::size_t>& ranks) {
    std::vector<std::string> named;
    for (const auto rank : ranks) {
        if (named.size() < named_ranks_max) named.push_back(cat(rank));
    }
    const auto more = ranks.size() - named.size();
    return cat(ranks.size() == 1 ? "rank " : "ranks ", join(named, ", "), more > 0 ? cat(" and ", more, " more") : "",
               ranks.size() == 1 ? " differs" : " differ", " from rank 0");
}

/// `all` has `stride` values for each rank, in rank order.
template <class Value>
std::vector<std::size_t> unlike_rank_0(std::span<const Value> all, std::size_t stride, std::size_t at) {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 1; rank * stride < all.size(); ++rank) {
        if (all[rank * stride + at] != all[at]) ranks.push_back(rank);
    }
    return ranks;
}

template <class Value>
Result<std::vector<Value>> gather(Communicator& world, std::vector<Value> mine, Duration timeout) {
    std::vector<Value> all(mine.size() * static_cast<std::size_t>(world.size()));
    MUSTER_TRY(world.run(all_gather(buffer(bytes_of(std::span<Value>(mine))), buffer(bytes_of(std::span<Value>(all)))),
                         timeout));
    return all;
}

}  // namespace

Result<std::vector<Replica>> replicas_of(const std::vector<StateTensor>& tensors, const FillPart& fill) {
    std::map<std::string_view, const StateTensor*> sorted;
    for (const auto& tensor : tensors) {
        if (tensor.placement == Placement::replicated) sorted[tensor.name] = &tensor;
    }
    std::vector<Replica> replicas;
    for (const auto& [name, tensor] : sorted)
        replicas.push_back({std::string(name), MUSTER_TRY(checksum_of(*tensor, fill))});
    return replicas;
}

Result<void> compare_replicas(Communicator& world, const std::vector<Replica>& replicas, std::string_view advice,
                              Duration timeout) {
    std::vector<std::uint32_t> checksums;
    for (const auto& replica : replicas) checksums.push_back(replica.checksum);
    const auto sum = crc32c(std::as_bytes(std::span(checksums)));
    const auto sums = MUSTER_TRY(gather<std::uint64_t>(world, {checksums.size(), sum}, timeout));
    const std::span<const std::uint64_t> summary(sums);
    if (const auto ranks = unlike_rank_0(summary, 2, 0); !ranks.empty()) {
        return Error{Errc::invalid_argument,
                     cat("the ranks have different numbers of replicated tensors: ", description_of(ranks),
                         ", which has ", summary[0], "; rank ", ranks[0], " has ", summary[2 * ranks[0]])};
    }
    if (unlike_rank_0(summary, 2, 1).empty()) return {};
    const auto all = MUSTER_TRY(gather(world, checksums, timeout));
    std::string first;
    std::size_t more = 0;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        const auto ranks = unlike_rank_0(std::span<const std::uint32_t>(all), replicas.size(), i);
        if (ranks.empty()) continue;
        more += first.empty() ? 0 : 1;
        if (first.empty())
            first = cat("tensor '", replicas[i].name, "' is not the same on all ranks: ", description_of(ranks));
    }
    const auto others =
        more == 0 ? std::string() : cat(", and so in ", more, more == 1 ? " other tensor" : " other tensors");
    return Error{Errc::invalid_argument, cat("checkpoint state: ", first, others, advice)};
}

}  // namespace muster::runtime
