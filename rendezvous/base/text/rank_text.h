// What makes the text of one rank like that of another.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// A line without the "[rank5]: " that PyTorch writes before each line of a traceback.
std::string_view without_rank(std::string_view line);

/// Every number, also a hexadecimal one, becomes '#': ports, pids, addresses and times differ from rank to rank.
std::string without_numbers(std::string_view text);

}  // namespace muster
