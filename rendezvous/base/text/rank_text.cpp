#include "rendezvous/base/text/rank_text.h"

namespace muster {

std::string_view without_rank(std::string_view line) {
    if (!line.starts_with("[rank")) return line;
    const auto end = line.find("]: ");
    return end == std::string_view::npos ? line : line.substr(end + 3);
}

std::string without_numbers(std::string_view text) {
    std::string out;
    bool in_number = false;
    for (const char c : text) {
        const bool digit = c >= '0' && c <= '9';
        const bool hexadecimal = (c >= 'a' && c <= 'f') || c == 'x';
        if (digit || (in_number && hexadecimal)) {
            if (!in_number) out += '#';
            in_number = true;
        } else {
            in_number = false;
            out += c;
        }
    }
    return out;
}

}  // namespace muster
