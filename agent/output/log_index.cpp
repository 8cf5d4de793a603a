#include "agent/output/log_index.h"

#include <charconv>
#include <vector>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// The number behind `name` and a space; `line` moves behind both.
template <class Number>
bool take(std::string_view& line, std::string_view name, Number& number) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') return false;
    line.remove_prefix(name.size() + 1);
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc{}) return false;
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    if (line.starts_with(' ')) line.remove_prefix(1);
    return true;
}

}  // namespace

std::string to_line(const LogMark& mark) {
    if (!mark.owner) return cat("at ", mark.time_ns, " from ", mark.offset, '\n');
    return cat("round ", mark.owner->round, " rank ", mark.owner->rank, " at ", mark.time_ns, " from ", mark.offset,
               " to ", mark.begin, " on ", mark.owner->host, '\n');
}

std::optional<LogMark> to_mark(std::string_view line) {
    LogMark mark;
    if (line.starts_with("at ")) {
        if (!take(line, "at", mark.time_ns) || !take(line, "from", mark.offset) || !line.empty()) return std::nullopt;
        mark.begin = mark.offset;
        return mark;
    }
    LogOwner owner;
    if (!take(line, "round", owner.round) || !take(line, "rank", owner.rank) || !take(line, "at", mark.time_ns) ||
        !take(line, "from", mark.offset) || !take(line, "to", mark.begin) || !line.starts_with("on ") ||
        mark.begin < mark.offset)
        return std::nullopt;
    owner.host = line.substr(3);
    mark.owner = std::move(owner);
    return mark;
}

std::string log_index_path(const std::string& path) {
    const auto slash = path.rfind('/');
    const auto name = slash == std::string::npos ? 0 : slash + 1;
    const auto dot = path.rfind('.');
    const auto stem = dot == std::string::npos || dot < name ? path.size() : dot;
    return cat(path.substr(0, name), '.', path.substr(name, stem - name), ".times");
}

}  // namespace muster::agent
