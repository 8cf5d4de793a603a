#include "rendezvous/rounds/ledgers/launched.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t shown_max = 160;
constexpr std::size_t shown_before_difference = 40;

std::string command(const native::Join& join) {
    return join.arguments.empty() ? join.entry : cat(join.entry, ' ', join.arguments);
}

/// The start of the character that this byte belongs to (UTF-8).
std::size_t start_of_character(const std::string& text, std::size_t at) {
    while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U) --at;
    return std::min(at, text.size());
}

std::string shown(const std::string& text, std::size_t from) {
    const auto first = start_of_character(text, from);
    const auto last = start_of_character(text, first + shown_max);
    return cat('`', first > 0 ? "..." : "", text.substr(first, last - first), last < text.size() ? "..." : "", '`');
}

}  // namespace

bool launches_other(const native::Join& one, const native::Join& other) {
    return one.arguments_hash != other.arguments_hash && one.arguments_hash != 0 && other.arguments_hash != 0;
}

std::pair<std::string, std::string> both_launched(const native::Join& one, const native::Join& other) {
    const auto first = command(one);
    const auto second = command(other);
    const auto differs = std::ranges::mismatch(first, second).in1 - first.begin();
    const auto at = static_cast<std::size_t>(differs);
    const bool fits = std::max(first.size(), second.size()) <= shown_max;
    const auto from = fits || at < shown_before_difference ? 0 : at - shown_before_difference;
    if (first == second) return {shown(first, 0), cat(shown(second, 0), " (the difference is further on)")};
    return {shown(first, from), shown(second, from)};
}

}  // namespace muster::rendezvous
