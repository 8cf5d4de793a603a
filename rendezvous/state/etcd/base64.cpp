#include <array>

#include "rendezvous/state/etcd/etcd_protocol.h"

namespace muster::rendezvous {

namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> make_values() {
    std::array<std::int8_t, 256> values{};
    for (auto& value : values) value = -1;
    for (std::size_t i = 0; i < digits.size(); ++i)
        values[static_cast<unsigned char>(digits[i])] = static_cast<std::int8_t>(i);
    return values;
}

constexpr auto values = make_values();

}  // namespace

std::string to_base64(std::string_view bytes) {
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        const auto byte = [&](std::size_t i) {
            return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u;
        };
        const unsigned group = byte(0) << 16 | byte(1) << 8 | byte(2);
        out += digits[group >> 18];
        out += digits[group >> 12 & 63];
        out += at + 1 < bytes.size() ? digits[group >> 6 & 63] : '=';
        out += at + 2 < bytes.size() ? digits[group & 63] : '=';
    }
    return out;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    std::size_t padding = 0;
    while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
    std::string out;
    out.reserve(text.size() / 4 * 3);
    for (std::size_t at = 0; at < text.size(); at += 4) {
        unsigned group = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            const bool pad = at + i >= text.size() - padding;
            const int value = pad ? 0 : values[static_cast<unsigned char>(text[at + i])];
            if (value < 0) return std::nullopt;
            group = group << 6 | static_cast<unsigned>(value);
        }
        for (const int shift : {16, 8, 0}) out += static_cast<char>(group >> shift & 255);
    }
    out.resize(out.size() - padding);
    return out;
}

}  // namespace muster::rendezvous
