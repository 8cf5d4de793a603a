#include "agent/output/log_index_search.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace muster::agent {

namespace {

constexpr std::size_t line_bytes_max = 1024;
/// Of one step of a bisection.
constexpr std::size_t piece_bytes = 4096;
/// Of one step backwards. An agent names the owner again within that.
constexpr std::size_t stride_bytes = 64 << 10;
constexpr std::string_view owner_begin = "\nround ";

/// Less at the end of the file, and where it cannot be read.
std::string read_at(int file, std::uint64_t offset, std::size_t size) {
    std::string text(size, '\0');
    const auto read = ::pread(file, text.data(), size, static_cast<off_t>(offset));
    text.resize(read > 0 ? static_cast<std::size_t>(read) : 0);
    return text;
}

struct PlacedMark {
    std::uint64_t position;
    LogMark mark;
};

/// The first mark that begins behind `offset`, within a piece.
std::optional<PlacedMark> first_mark_behind(int index, std::uint64_t offset) {
    const auto text = read_at(index, offset, piece_bytes);
    for (auto at = text.find('\n'); at != std::string::npos;) {
        const auto end = text.find('\n', at + 1);
        if (end == std::string::npos) break;
        if (auto mark = to_mark(std::string_view(text).substr(at + 1, end - at - 1)))
            return PlacedMark{offset + at + 1, *std::move(mark)};
        at = end;
    }
    return std::nullopt;
}

std::optional<LogMark> owner_mark(std::string_view text) {
    auto mark = to_mark(text.substr(0, text.find('\n')));
    return mark && mark->owner ? mark : std::nullopt;
}

}  // namespace

IndexPlace find_mark_before(int index, std::int64_t time_ns) {
    std::uint64_t low = 0;
    const auto size = ::lseek(index, 0, SEEK_END);
    auto high = size > 0 ? static_cast<std::uint64_t>(size) : 0;
    while (high - low > piece_bytes) {
        const auto middle = low + (high - low) / 2;
        const auto found = first_mark_behind(index, middle);
        if (found && found->position < high && found->mark.time_ns < time_ns)
            low = found->position;
        else
            high = middle;
    }
    auto owner = low > 0 ? last_owner_mark(index, low) : std::nullopt;
    return {low, owner ? std::move(owner->owner) : std::nullopt};
}

std::optional<LogMark> last_owner_mark(int index, std::uint64_t end) {
    for (auto until = end; until > 0;) {
        const auto from = until - std::min<std::uint64_t>(until, stride_bytes);
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
