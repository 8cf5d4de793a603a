// Building strings from parts. libstdc++ 12 has no std::format, and streams are slow and stateful.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

namespace detail {

inline void append_part(std::string& out, std::string_view part) {
    out.append(part);
}
inline void append_part(std::string& out, const char* part) {
    out.append(part);
}
inline void append_part(std::string& out, char part) {
    out.push_back(part);
}
inline void append_part(std::string& out, bool part) {
    out.append(part ? "true" : "false");
}

template <class T>
requires std::integral<T> || std::floating_point<T>
void append_part(std::string& out, T part) {
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof digits, part).ptr;
    out.append(digits, end);
}

}  // namespace detail

/// The parts (text, characters, booleans, numbers) in one string.
template <class... Parts>
std::string cat(const Parts&... parts) {
    std::string out;
    (detail::append_part(out, parts), ...);
    return out;
}

/// The pieces of `text` between separators; an empty text gives one empty piece. The views live as long as `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Without blanks (space, tab, CR, LF) at both ends.
std::string_view trim(std::string_view text);

/// What follows the last '/' of a path; all of it if there is none.
std::string_view base_name(std::string_view path);

/// `parts` with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// The whole of `text` as a decimal number of T, or false: no blanks, no trailing characters, no overflow.
template <std::integral T>
[[nodiscard]] bool parse_number(std::string_view text, T& value) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failure == std::errc{} && end == text.data() + text.size() && !text.empty();
}

/// The smallest number of single-character edits (insert, delete, replace) that turns `a` into `b`; for
/// "did you mean". Cost a.size() * b.size().
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace muster
