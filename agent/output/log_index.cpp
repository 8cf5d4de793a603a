#include "agent/output/log_index.h"

#include "agent/output/log_words.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

std::string to_line(const LogMark& mark) {
    if (!mark.owner) return cat("at ", mark.time_ns, " from ", mark.offset, '\n');
    return cat("round ", mark.owner->round, " rank ", mark.owner->rank, " at ", mark.time_ns, " from ", mark.offset,
               " to ", mark.begin, " on ", mark.owner->host, '\n');
}

std::optional<LogMark> to_mark(std::string_view line) {
    LogMark mark;
    if (line.starts_with("at ")) {
        if (!take_number(line, "at", mark.time_ns) || !take_number(line, "from", mark.offset) || !line.empty())
            return std::nullopt;
        mark.begin = mark.offset;
        return mark;
    }
    LogOwner owner;
    if (!take_number(line, "round", owner.round) || !take_number(line, "rank", owner.rank) ||
        !take_number(line, "at", mark.time_ns) || !take_number(line, "from", mark.offset) ||
        !take_number(line, "to", mark.begin) || !line.starts_with("on ") || mark.begin < mark.offset)
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
