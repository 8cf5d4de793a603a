// The limits of the search for bad nodes, which a file of limits of muster doctor may change. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace muster::runtime {

struct SearchLimits {
    int clock_ms = 0;  ///< Wall clocks of two nodes that differ by more are named.
    /// A pair with less than this part of the usual bandwidth counts as failed, if its kernels are as slow as its
    /// ranks.
    int link_slow_percent = 0;
    int lost_permille = 0;  ///< A link fails if more than so many of 1,000 segments are lost.
};

/// "clock-ms=1000 link-slow-percent=25 lost-permille=3". Nothing: one is missing, or is no number.
std::optional<SearchLimits> read_search_limits(std::string_view text);

/// Of such a text, one limit. Other words are skipped.
std::optional<int> limit_in(std::string_view text, std::string_view name);

}  // namespace muster::runtime
