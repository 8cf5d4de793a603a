#include "rendezvous/base/text/percent.h"

#include <charconv>

namespace muster {

std::string percent_encoded(std::string_view text) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string out;
    for (const unsigned char byte : text) {
        const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                           (byte >= 'A' && byte <= 'Z') ||
                           std::string_view("-._~").find(static_cast<char>(byte)) != std::string_view::npos;
        if (plain)
            out += static_cast<char>(byte);
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
