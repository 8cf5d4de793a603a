#include "rendezvous/base/kernel/cgroup_mounts.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

bool is_octal(char digit) {
    return digit >= '0' && digit <= '7';
}

/// A field of mountinfo, in which blanks, line ends and backslashes are "\040" and the like.
std::string unescaped(std::string_view field) {
    std::string out;
    for (std::size_t i = 0; i < field.size(); ++i) {
        const bool escape = field[i] == '\\' && i + 3 < field.size() && is_octal(field[i + 1]) &&
                            is_octal(field[i + 2]) && is_octal(field[i + 3]);
        if (!escape) {
            out += field[i];
            continue;
        }
        out += static_cast<char>((field[i + 1] - '0') * 64 + (field[i + 2] - '0') * 8 + (field[i + 3] - '0'));
        i += 3;
    }
    return out;
}

bool names(std::string_view list, std::string_view one) {
    const auto all = split(list, ',');
    return std::find(all.begin(), all.end(), one) != all.end();
}

/// Where a mount shows the group `own`. `line` is "36 35 98:0 /root /mount/point options - type source options"; the
/// root is what of the hierarchy is shown there. Empty where `own` lies outside of it.
std::string shown_at(std::string_view line, std::string_view own) {
    const auto fields = split(line, ' ');
    constexpr std::size_t root_field = 3, point_field = 4;
    if (fields.size() <= point_field) return {};
    const auto root = unescaped(fields[root_field]);
    const auto point = unescaped(fields[point_field]);
    if (root != "/") {
        if (!own.starts_with(root) || (own.size() > root.size() && own[root.size()] != '/')) return {};
        own.remove_prefix(root.size());
    }
    return own == "/" || own.empty() ? point : cat(point, own);
}

/// Outside of the root of a cgroup namespace there are names that nobody here can follow.
bool is_outside(std::string_view own) {
    return own.empty() || own.starts_with("/..");
}

}  // namespace

std::string own_cgroup_directory(std::string_view mountinfo, std::string_view cgroup) {
    std::string_view own;
    for (const auto line : split(cgroup, '\n'))
        if (line.starts_with("0::/")) own = line.substr(3);
    if (is_outside(own)) return {};
    for (const auto line : split(mountinfo, '\n')) {
        if (line.find(" - cgroup2 ") == std::string_view::npos) continue;
        if (auto found = shown_at(line, own); !found.empty()) return found;
    }
    return {};
}

std::string own_v1_cgroup_directory(std::string_view mountinfo, std::string_view cgroup, std::string_view controller) {
    std::string_view own;  // of a line "4:memory:/path"
    for (const auto line : split(cgroup, '\n')) {
        const auto fields = split(line, ':');
        if (fields.size() >= 3 && names(fields[1], controller))
            own = line.substr(fields[0].size() + fields[1].size() + 2);
    }
    if (is_outside(own)) return {};
    for (const auto line : split(mountinfo, '\n')) {
        const auto options = line.substr(line.rfind(' ') + 1);
        if (line.find(" - cgroup ") == std::string_view::npos || !names(options, controller)) continue;
        if (auto found = shown_at(line, own); !found.empty()) return found;
    }
    return {};
}

std::vector<std::string> group_and_ancestors(std::string directory) {
    std::vector<std::string> all;
    while (!directory.empty()) {
        all.push_back(directory);
        const auto end = directory.rfind('/');
        directory.resize(end == std::string::npos ? 0 : end);
    }
    return all;
}

}  // namespace muster
