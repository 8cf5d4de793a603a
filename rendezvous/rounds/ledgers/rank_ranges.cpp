#include "rendezvous/rounds/ledgers/rank_ranges.h"

#include <algorithm>
#include <iterator>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

RankRanges::RankRanges(const std::vector<RankRange>& kept) {
    for (const auto& range : kept) ranges_[range.first] = range.last;
}

std::vector<RankRange> RankRanges::kept() const {
    std::vector<RankRange> all;
    for (auto range = ranges_.begin(); range != ranges_.end() && all.size() < pieces_max; ++range)
        all.push_back({range->first, range->second});
    return all;
}

bool RankRanges::add(std::int32_t rank) {
    auto first = rank;
    auto last = rank;
    const auto after = ranges_.upper_bound(rank);
    if (after != ranges_.begin()) {
        const auto before = std::prev(after);
        if (before->second >= rank) return false;
        if (before->second == rank - 1) first = before->first;
    }
    if (after != ranges_.end() && after->first == rank + 1) {
        last = after->second;
        ranges_.erase(after);
    }
    ranges_[first] = last;
    return true;
}

std::size_t RankRanges::size() const {
    std::int64_t size = 0;
    for (const auto& [first, last] : ranges_) size += std::max<std::int64_t>(std::int64_t{last} - first + 1, 0);
    return static_cast<std::size_t>(size);
}

std::string RankRanges::text(std::uint32_t count) const {
    std::string out;
    std::size_t pieces = 0;
    std::int64_t told = 0;
    for (const auto& [first, last] : ranges_) {
        if (++pieces > pieces_max) return cat(out, " and ", count - told, " more");
        out += out.empty() ? "" : ",";
        out += first == last ? cat(first) : cat(first, '-', last);
        told += std::int64_t{last} - first + 1;
    }
    return out;
}

}  // namespace muster::rendezvous
