#include "rendezvous/base/system/python_packages.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace fs = std::filesystem;

namespace {

void add_packages(const fs::path& folder, std::map<std::string, std::string>& found) {
    constexpr std::string_view ending = ".dist-info";
    std::error_code none;  // a file of that name
    for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
        const auto name = at->path().filename().string();
        const auto dash = name.find('-');
        if (!name.ends_with(ending) || dash >= name.size() - ending.size()) continue;
        found[name.substr(0, dash)] = name.substr(dash + 1, name.size() - dash - 1 - ending.size());
    }
}

}  // namespace

std::map<std::string, std::string> python_packages(const std::string& prefix) {
    std::map<std::string, std::string> found;
    if (prefix.empty()) return found;
    std::error_code failure;
    for (fs::directory_iterator python(prefix + "/lib", failure), end; !failure && python != end;
         python.increment(failure))
        if (python->path().filename().string().starts_with("python3"))
            for (const char* folder : {"site-packages", "dist-packages"}) add_packages(python->path() / folder, found);
    // Of a distribution's Python pip installs below /usr/local, which comes first in sys.path.
    if (prefix == "/usr")
        for (auto& [name, version] : python_packages("/usr/local")) found[name] = std::move(version);
    return found;
}

std::string python_prefix(std::string_view path) {
    for (const auto directory : split(path, ':')) {
        const fs::path python = fs::path(directory) / "python3";
        if (directory.empty() || ::access(python.c_str(), X_OK) != 0) continue;
        std::error_code failure;
        const auto prefix = python.parent_path().parent_path();
        if (fs::exists(prefix / "pyvenv.cfg", failure)) return prefix.string();
        return fs::canonical(python, failure).parent_path().parent_path().string();
    }
    return {};
}

}  // namespace muster
