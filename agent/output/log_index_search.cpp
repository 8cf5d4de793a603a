#include "agent/output/log_index_search.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace muster::agent {

namespace {

constexpr std::size_t line_bytes_max = 1024;
constexpr std::string_view owner_begin = "\nround ";

/// Less at the end of the file, and where it cannot be read.
std::string read_at(int file, std::uint64_t offset, std::size_t size) {
    std::string text(size, '\0');
    const auto read = ::pread(file, text.data(), size, static_cast<off_t>(offset));
    text.resize(read > 0 ? static_cast<std::size_t>(read) : 0);
    return text;
}

/// Of a whole line: half of one, at the end, is not read as a mark later either.
std::optional<LogMark> owner_mark(std::string_view text) {
    const auto end = text.find('\n');
    auto mark = end == std::string_view::npos ? std::nullopt : to_mark(text.substr(0, end));
    return mark && mark->owner ? mark : std::nullopt;
}

struct PlacedMark {
    std::uint64_t position;
    LogMark mark;
};

/// The first mark with an owner whose line begins behind `offset`, within a stride.
std::optional<PlacedMark> first_owner_behind(int index, std::uint64_t offset) {
    const auto text = read_at(index, offset, owner_stride_bytes + line_bytes_max);
    for (auto at = text.find(owner_begin); at < owner_stride_bytes; at = text.find(owner_begin, at + 1))
        if (auto mark = owner_mark(std::string_view(text).substr(at + 1)))
            return PlacedMark{offset + at + 1, *std::move(mark)};
    return std::nullopt;
}

}  // namespace

std::uint64_t find_owner_before(int index, const std::function<bool(const LogMark&)>& is_before) {
    std::uint64_t low = 0;
    const auto size = ::lseek(index, 0, SEEK_END);
    auto high = size > 0 ? static_cast<std::uint64_t>(size) : 0;
    while (high - low > owner_stride_bytes) {
        const auto middle = low + (high - low) / 2;
        const auto found = first_owner_behind(index, middle);
        if (found && found->position < high && is_before(found->mark))
            low = found->position;
        else
            high = middle;
    }
    return low;
}

std::optional<LogMark> last_owner_mark(int index, std::uint64_t end) {
    for (auto until = end; until > 0;) {
        const auto from = until - std::min<std::uint64_t>(until, owner_stride_bytes);
        // A line that begins in the stride may end behind it.
        const auto text = read_at(index, from, until - from + line_bytes_max);
        std::optional<LogMark> last;
        for (auto at = text.find(owner_begin); at < until - from; at = text.find(owner_begin, at + 1))
            if (auto mark = owner_mark(std::string_view(text).substr(at + 1))) last = std::move(mark);
        if (last) return last;
        until = from;
    }
    return owner_mark(read_at(index, 0, line_bytes_max));
}

}  // namespace muster::agent
