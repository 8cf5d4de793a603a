// Host lists as Slurm writes them: "gpu[01-03,7]", "r[1-2]n[1-4]-ib,login", "n[1-2,1[0-3]]". Pure.
//
//   list  = item {"," item}
//   item  = {text | "[" entry {"," entry} "]"}
//   entry = NUMBER | NUMBER "-" NUMBER | item
// The first number's width is the minimum width: [08-11] is 08, 09, 10, 11. Of several brackets the last one varies
// fastest.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

/// A longer list is an error, because it would exhaust the memory.
inline constexpr std::size_t host_count_max = 100'000;

/// The hosts in order, with duplicates. The error names the position (from 1) of the first invalid character.
Result<std::vector<std::string>> parse_host_list(std::string_view text);

}  // namespace muster
