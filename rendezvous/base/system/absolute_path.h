#pragma once

#include <string>
#include <string_view>

namespace muster {

/// As a worker finds it that changes its directory. Where the launcher's own one is gone, the path as it is: whoever
/// opens it says what is wrong.
std::string absolute_path(std::string_view path);

}  // namespace muster
