#include "worker_runtime/pairs/search_limits.h"

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

std::optional<int> limit_in(std::string_view text, std::string_view name) {
    for (const auto word : split(text, ' ')) {
        const auto equals = word.find('=');
        int value = 0;
        if (word.substr(0, equals) == name && equals != std::string_view::npos &&
            parse_number(word.substr(equals + 1), value))
            return value;
    }
    return std::nullopt;
}

std::optional<SearchLimits> read_search_limits(std::string_view text) {
    const auto clock = limit_in(text, "clock-ms"), slow = limit_in(text, "link-slow-percent"),
               lost = limit_in(text, "lost-permille");
    if (!clock || !slow || !lost) return std::nullopt;
    return SearchLimits{.clock_ms = *clock, .link_slow_percent = *slow, .lost_permille = *lost};
}

}  // namespace muster::runtime
