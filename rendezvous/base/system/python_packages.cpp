#include "rendezvous/base/system/python_packages.h"

#include <filesystem>
#include <string_view>
#include <system_error>

namespace muster {

namespace fs = std::filesystem;

std::map<std::string, std::string> python_packages(const std::string& prefix) {
    constexpr std::string_view ending = ".dist-info";
    std::map<std::string, std::string> found;
    if (prefix.empty()) return found;
    std::error_code failure;
    for (fs::directory_iterator python(prefix + "/lib", failure), end; !failure && python != end;
         python.increment(failure)) {
        if (!python->path().filename().string().starts_with("python3")) continue;
        std::error_code none;  // a file of that name
        for (fs::directory_iterator at(python->path() / "site-packages", none); !none && at != end;
             at.increment(none)) {
            const auto name = at->path().filename().string();
            const auto dash = name.find('-');
            if (!name.ends_with(ending) || dash >= name.size() - ending.size()) continue;
            found[name.substr(0, dash)] = name.substr(dash + 1, name.size() - dash - 1 - ending.size());
        }
    }
    return found;
}

}  // namespace muster
