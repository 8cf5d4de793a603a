// Host lists of a scheduler: any bytes give an error with a place in them, or names that are none of them empty and
// read as themselves.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/check.h"
#include "rendezvous/base/host_list.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto hosts = parse_host_list(text)) {
        MUSTER_CHECK(!hosts->empty() && hosts->size() <= launcher::host_count_max, hosts->size());
        for (std::size_t i = 0; i < hosts->size(); i += 1 + hosts->size() / 64) {
            const auto again = parse_host_list((*hosts)[i]);
            MUSTER_CHECK(again.has_value() && again->size() == 1 && again->front() == (*hosts)[i], (*hosts)[i]);
        }
    } else {
        MUSTER_CHECK(hosts.error().context.starts_with("at character "), hosts.error().context);
    }
    return 0;
}
