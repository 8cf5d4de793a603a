#include "rendezvous/base/text/percent.h"

#include <charconv>

namespace muster {

std::string percent_encoded(std::string_view text) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string out;
    for (const char letter : text) {
        const bool plain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                           (letter >= 'A' && letter <= 'Z') ||
                           std::string_view("-._~").find(letter) != std::string_view::npos;
        const auto byte = static_cast<unsigned char>(letter);
        if (plain)
            out += letter;
        else
            out += {'%', digits[byte >> 4], digits[byte & 15]};
    }
    return out;
}

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '%') {
            out += text[at];
            continue;
        }
        const auto digits = text.substr(at + 1, 2);
        unsigned char byte = 0;
        const auto* const end = digits.data() + digits.size();
        if (digits.size() < 2 || std::from_chars(digits.data(), end, byte, 16).ptr != end) return std::nullopt;
        out += static_cast<char>(byte);
        at += 2;
    }
    return out;
}

}  // namespace muster
