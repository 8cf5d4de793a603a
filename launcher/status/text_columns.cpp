#include "launcher/status/text_columns.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

Character character_at(std::string_view text) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (bytes == 1 || text.size() < bytes) return {};
    char32_t point = first & (0xFFU >> (bytes + 1));
    for (std::size_t i = 1; i < bytes; ++i) point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
    const bool combining = (point >= 0x300 && point <= 0x36F) || point == 0x200B || point == 0x200D || point == 0xFE0F;
    const bool wide = (point >= 0x1100 && point <= 0x115F) || (point >= 0x2E80 && point <= 0xA4CF) ||
                      (point >= 0xAC00 && point <= 0xD7A3) || (point >= 0xF900 && point <= 0xFAFF) ||
                      (point >= 0xFE30 && point <= 0xFE6F) || (point >= 0xFF00 && point <= 0xFF60) ||
                      (point >= 0xFFE0 && point <= 0xFFE6) || (point >= 0x1F300 && point <= 0x1FAFF) ||
                      (point >= 0x20000 && point <= 0x3FFFD);
    return {bytes, combining ? 0U : wide ? 2U : 1U};
}

std::size_t columns_of(std::string_view text) {
    std::size_t columns = 0;
    while (!text.empty()) {
        const auto next = character_at(text);
        columns += next.columns;
        text.remove_prefix(std::min(next.bytes, text.size()));
    }
    return columns;
}

std::string cut_to(std::string_view text, std::size_t columns) {
    if (columns_of(text) <= columns) return std::string(text);
    const std::string_view dots = std::string_view("...").substr(0, std::min<std::size_t>(3, columns));
    std::size_t used = 0;
    std::size_t at = 0;
    while (at < text.size()) {
        const auto next = character_at(text.substr(at));
        if (used + next.columns > columns - dots.size()) break;
        used += next.columns;
        at += next.bytes;
    }
    return cat(text.substr(0, at), dots);
}

std::string padded(std::string_view text, std::size_t columns) {
    auto cell = cut_to(text, columns);
    cell.append(columns - columns_of(cell), ' ');
    return cell;
}

}  // namespace muster::launcher
