#include "launcher/nearest.h"

#include <limits>

#include "rendezvous/base/text.h"

namespace muster::launcher {

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
    // The cost is the product of both lengths, and nobody means an option by a word of a thousand characters.
    const auto given = word.substr(0, 64);
    std::string best;
    std::size_t best_distance = std::numeric_limits<std::size_t>::max();
    for (const auto& candidate : known) {
        const auto distance = edit_distance(given, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

}  // namespace muster::launcher
