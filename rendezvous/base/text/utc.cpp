#include "rendezvous/base/text/utc.h"

#include <ctime>

namespace muster {

std::string utc_text(std::chrono::seconds since_1970, const char* format) {
    const std::time_t seconds = since_1970.count();
    std::tm parts{};
    if (::gmtime_r(&seconds, &parts) == nullptr) return "an unknown time";
    char text[64];
    return {text, std::strftime(text, sizeof text, format, &parts)};
}

}  // namespace muster
