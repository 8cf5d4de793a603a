// A set of ranks as ranges, as people read it: "0-7,12".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace muster::rendezvous {

struct RankRange {
    std::int32_t first = 0;
    std::int32_t last = 0;
};

class RankRanges {
  public:
    /// Pieces "3-7" that are told and kept; more become "and N more".
    static constexpr std::size_t pieces_max = 64;

    RankRanges() = default;
    /// In order, whatever they are: what makes no sense is told wrong and does no harm.
    explicit RankRanges(const std::vector<RankRange>& kept);
    /// As many pieces as are ever told.
    [[nodiscard]] std::vector<RankRange> kept() const;

    /// False where it is in already.
    bool add(std::int32_t rank);
    /// So many ranks are in its pieces.
    [[nodiscard]] std::size_t size() const;
    /// `count`: how many ranks there are in all, also those that were not added.
    [[nodiscard]] std::string text(std::uint32_t count) const;

  private:
    std::map<std::int32_t, std::int32_t> ranges_;  ///< first -> last, neither touching nor overlapping
};

}  // namespace muster::rendezvous
