// Host lists as Slurm writes them: "gpu[01-03,7]", "r[1-2]n[1-4]-ib,login", "n[1-2,1[0-3]]". Pure.
//
//   list  = item {"," item}
//   item  = {text | "[" entry {"," entry} "]"}
//   entry = NUMBER | NUMBER "-" NUMBER | item
//
// The first number's width is the least width of all: [08-11] is 08, 09, 10, 11. Of several brackets the last counts
// fastest.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// More than any machine has; a longer list is a mistake that would take the memory.
inline constexpr std::size_t host_count_max = 100'000;

/// The hosts in order, duplicates and all. The error names the character (from 1) at which the list does not read.
Result<std::vector<std::string>> parse_host_list(std::string_view text);

}  // namespace muster::launcher
