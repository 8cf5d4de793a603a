#include "launcher/status/key_reader.h"

#include <algorithm>

#include "rendezvous/base/text/printable.h"

namespace muster::launcher {

namespace {

constexpr std::size_t bytes_max = 1024;
constexpr char escape = '\033';

/// The bytes of a character's UTF-8, by its first one.
std::size_t length_of(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF8 ? 4 : 1;
}

/// Of "ESC [ parameters final" and "ESC O final".
std::optional<KeyKind> kind_of(std::string_view parameters, char final) {
    switch (final) {
        case 'A': return KeyKind::up;
        case 'B': return KeyKind::down;
        case 'H': return KeyKind::home;
        case 'F': return KeyKind::end;
        case '~':
            if (parameters == "5") return KeyKind::page_up;
            if (parameters == "6") return KeyKind::page_down;
            if (parameters == "1" || parameters == "7") return KeyKind::home;
            if (parameters == "4" || parameters == "8") return KeyKind::end;
            return std::nullopt;
        default: return std::nullopt;
    }
}

std::optional<KeyKind> kind_of(char byte) {
    switch (byte) {
        case '\r':
        case '\n': return KeyKind::enter;
        case '\x7F':
        case '\b': return KeyKind::backspace;
        case '\x02': return KeyKind::page_up;    // Ctrl-B
        case '\x06': return KeyKind::page_down;  // Ctrl-F
        case '\x0C': return KeyKind::redraw;     // Ctrl-L
        default: return std::nullopt;
    }
}

}  // namespace

void KeyReader::add(std::string_view bytes) {
    bytes_ += bytes.substr(0, bytes_max - std::min(bytes_max, bytes_.size()));
    is_whole_ = false;
}

/// Of bytes that begin with ESC. Nothing: it is not whole, or no key.
std::optional<Key> KeyReader::take_sequence() {
    if (bytes_.size() == 1 || (bytes_[1] != '[' && bytes_[1] != 'O')) {
        if (bytes_.size() == 1 && !is_whole_) return std::nullopt;
        bytes_.erase(0, 1);
        return Key{KeyKind::escape};
    }
    const auto is_final = [](char one) { return one >= '@' && one <= '~'; };
    const auto final = std::find_if(bytes_.begin() + 2, bytes_.end(), is_final);
    if (final == bytes_.end()) {
        if (is_whole_) bytes_.clear();
        return std::nullopt;
    }
    const auto kind = kind_of(std::string_view(bytes_.begin() + 2, final), *final);
    bytes_.erase(bytes_.begin(), final + 1);
    return kind ? std::optional(Key{*kind}) : std::nullopt;
}

std::optional<Key> KeyReader::next() {
    while (!bytes_.empty()) {
        if (bytes_.front() == escape) {
            const auto size = bytes_.size();
            if (auto key = take_sequence()) return key;
            if (bytes_.size() == size) return std::nullopt;
            continue;
        }
        const auto length = length_of(bytes_.front());
        if (bytes_.size() < length && !is_whole_) return std::nullopt;
        const auto character = bytes_.substr(0, length);
        bytes_.erase(0, length);
        if (const auto kind = kind_of(character.front())) return Key{*kind};
        if (is_printable_line(character)) return Key{KeyKind::character, character};
    }
    return std::nullopt;
}

}  // namespace muster::launcher
