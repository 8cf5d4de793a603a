// One thing that a man in the middle can do to bytes of a TLS connection on their way.
#pragma once

#include <algorithm>
#include <string>

namespace muster::simulation {

/// Where a record that begins at `at` ends.
inline std::size_t record_end(const std::string& wire, std::size_t at) {
    if (at + 5 > wire.size()) return wire.size();
    const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(wire[i])); };
    return std::min(wire.size(), at + 5 + byte(at + 3) * 256 + byte(at + 4));
}

/// Changes, drops, repeats, reorders or splices `wire`. `other` was said before, there or elsewhere. `below(n)` draws
/// one of 0 .. n-1.
template <class Below>
void tamper(std::string& wire, const std::string& other, Below below) {
    const std::size_t place = wire.empty() ? 0 : below(wire.size());
    switch (below(7)) {
        case 0:  // change a bit
            if (!wire.empty()) wire[place] = static_cast<char>(wire[place] ^ (1 << below(8)));
            break;
        case 1: wire.erase(place, 1 + below(30)); break;
        case 2: wire.erase(0, record_end(wire, 0)); break;
        case 3: wire.insert(0, wire.substr(0, record_end(wire, 0))); break;
        case 4: {  // two records change places
            const auto first = record_end(wire, 0), second = record_end(wire, first);
            std::rotate(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(first),
                        wire.begin() + static_cast<std::ptrdiff_t>(second));
            break;
        }
        case 5: wire.insert(place, other.substr(other.empty() ? 0 : below(other.size()), 1 + below(300))); break;
        case 6: {  // some record that was said before
            std::size_t begin = 0;
            for (auto skipped = below(4); skipped > 0; --skipped) begin = record_end(other, begin);
            wire.insert(0, other.substr(begin, record_end(other, begin) - begin));
            break;
        }
    }
}

}  // namespace muster::simulation
