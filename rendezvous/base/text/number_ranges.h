// Lists of numbers as people and the kernel write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

/// "0-3,8", or "none"; `numbers` ascend.
std::string describe_ranges(const std::vector<std::uint32_t>& numbers);

}  // namespace muster
