#include "rendezvous/base/system/absolute_path.h"

#include <filesystem>
#include <system_error>

namespace muster {

std::string absolute_path(std::string_view path) {
    std::error_code failure;
    auto absolute = std::filesystem::absolute(path, failure).string();
    return failure ? std::string(path) : absolute;
}

}  // namespace muster
