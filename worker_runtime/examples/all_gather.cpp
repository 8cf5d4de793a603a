#include "worker_runtime/examples/all_gather.h"

#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"

namespace muster::runtime {

AllGather::AllGather(SharedStore& store, Place place, std::string prefix)
    : store_(store), place_(place), prefix_(std::move(prefix)) {
    MUSTER_CHECK(place.rank < place.world, place.rank, place.world);
}

std::string AllGather::key(std::uint64_t gathering, std::uint32_t rank) const {
    return cat(prefix_, '/', gathering, '/', rank);
}

Result<std::vector<std::string>> AllGather::gather(const std::string& mine) {
    std::vector<std::string> all(place_.world);
    all[place_.rank] = mine;
    if (place_.world == 1) return all;
    const auto current = gathering_count_++;
    if (auto done = store_.set(key(current, place_.rank), mine); done.has_error()) return done.error();
    for (std::uint32_t rank = 0; rank < place_.world; ++rank) {
        if (rank == place_.rank) continue;
        auto theirs = store_.wait_get(key(current, rank));
        if (theirs.has_error()) return with_context(theirs.error(), cat("wait for rank ", rank));
        all[rank] = std::move(*theirs);
    }
    if (current > 0) {
        if (auto done = store_.erase(key(current - 1, place_.rank)); done.has_error()) return done.error();
    }
    return all;
}

}  // namespace muster::runtime
