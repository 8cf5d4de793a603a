#include "rendezvous/base/text/number_ranges.h"

#include "rendezvous/base/text/text.h"

namespace muster {

std::string describe_ranges(const std::vector<std::uint32_t>& numbers) {
    std::string text;
    for (std::size_t first = 0; first < numbers.size();) {
        std::size_t last = first;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        if (!text.empty()) text += ',';
        text += last == first ? cat(numbers[first]) : cat(numbers[first], '-', numbers[last]);
        first = last + 1;
    }
    return text.empty() ? "none" : text;
}

}  // namespace muster
