#include "rendezvous/base/text/printable.h"

#include <algorithm>
#include <cstddef>

namespace muster {

namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
}

/// The bytes of the character that `text` begins with; 0 where it is not valid UTF-8.
std::size_t character_bytes(std::string_view text) {
    const auto first = byte_at(text, 0), second = byte_at(text, 1);
    if (first < 0x80) return 1;
    const std::size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    for (std::size_t at = 1; at < size; ++at)
        if ((byte_at(text, at) & 0xc0) != 0x80) return 0;
    // Longer forms than necessary, surrogates, and what is above U+10FFFF.
    const bool is_wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                          (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
    return is_wrong ? 0 : size;
}

/// Of the character that `text` begins with.
bool is_control(std::string_view text) {
    const auto first = byte_at(text, 0);
    if (first < 0x80) return first < 0x20 ? first != '\n' && first != '\t' : first == 0x7f;
    return first == 0xc2 && byte_at(text, 1) < 0xa0;
}

}  // namespace

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const auto size = character_bytes(text);
        if (size == 0) return false;
        text.remove_prefix(size);
    }
    return true;
}

bool is_printable(std::string_view text) {
    // Nearly all text is plain, and every message of an agent is checked.
    constexpr auto is_plain = [](char letter) { return letter >= ' ' && letter <= '~'; };
    if (std::ranges::all_of(text, is_plain)) return true;
    while (!text.empty()) {
        const auto size = character_bytes(text);
        if (size == 0 || is_control(text)) return false;
        text.remove_prefix(size);
    }
    return true;
}

bool is_printable_line(std::string_view text) {
    return text.find_first_of("\n\t") == std::string_view::npos && is_printable(text);
}

std::string printable_line(std::string_view text) {
    std::string out;
    for (const char letter : printable(text)) {
        if (letter == '\n' || letter == '\t')
            out += letter == '\n' ? "\\x0a" : "\\x09";
        else
            out += letter;
    }
    return out;
}

std::string_view front_of(std::string_view text, std::size_t bytes_max) {
    if (text.size() <= bytes_max) return text;
    while (bytes_max > 0 && (byte_at(text, bytes_max) & 0xc0) == 0x80) --bytes_max;
    return text.substr(0, bytes_max);
}

std::string_view back_of(std::string_view text, std::size_t bytes_max) {
    if (text.size() <= bytes_max) return text;
    auto first = text.size() - bytes_max;
    while (first < text.size() && (byte_at(text, first) & 0xc0) == 0x80) ++first;
    return text.substr(first);
}

std::string printable(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const auto size = std::max<std::size_t>(1, character_bytes(text));
        if (character_bytes(text) > 0 && !is_control(text)) {
            out.append(text.substr(0, size));
        } else {
            for (std::size_t at = 0; at < size; ++at)
                out.append("\\x").append(1, digits[byte_at(text, at) >> 4]).append(1, digits[byte_at(text, at) & 15]);
        }
        text.remove_prefix(size);
    }
    return out;
}

}  // namespace muster
