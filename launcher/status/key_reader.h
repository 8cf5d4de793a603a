// What a person types on a terminal, as keys. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster::launcher {

enum class KeyKind { character, enter, escape, backspace, up, down, page_up, page_down, home, end, redraw };

struct Key {
    KeyKind kind = KeyKind::character;
    std::string text{};  ///< Of a character: its UTF-8.
    friend bool operator==(const Key&, const Key&) = default;
};

/// Turns bytes into keys. A sequence that it does not know is no key.
class KeyReader {
  public:
    /// Bytes of the terminal. Beyond 1 KiB that nobody has taken, they are dropped.
    void add(std::string_view bytes);
    std::optional<Key> next();
    /// The last bytes may be the beginning of a sequence. If none follow within 50 ms, call end_sequence().
    [[nodiscard]] bool has_beginning() const { return !bytes_.empty(); }
    /// What has begun is whole: a lone ESC is the key Esc.
    void end_sequence() { is_whole_ = true; }

  private:
    std::optional<Key> take_sequence();

    std::string bytes_;
    bool is_whole_ = false;
};

}  // namespace muster::launcher
