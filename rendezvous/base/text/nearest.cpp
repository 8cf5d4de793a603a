#include "rendezvous/base/text/nearest.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

/// Edits from `word` to the candidate, or to a beginning or an end of it of the same length, which costs one more.
std::size_t distance(std::string_view word, std::string_view candidate) {
    const auto whole = edit_distance(word, candidate);
    constexpr std::size_t says_something = 3;  // of fewer letters every word has some beginning or end
    if (word.size() < says_something || candidate.size() <= word.size()) return whole;
    const auto beginning = edit_distance(word, candidate.substr(0, word.size()));
    const auto end = edit_distance(word, candidate.substr(candidate.size() - word.size()));
    return std::min(whole, std::min(beginning, end) + 1);
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
    // The cost is the product of both lengths, and nobody means an option by a word of a thousand characters.
    const auto given = word.substr(0, 64);
    const auto far = std::max<std::size_t>(1, (given.size() + 1) / 3) + 1;
    std::string best;
    auto best_distance = far;
    for (const auto& candidate : known) {
        const auto edits = distance(given, candidate);
        if (edits < best_distance) {
            best_distance = edits;
            best = candidate;
        }
    }
    return best;
}

}  // namespace muster
