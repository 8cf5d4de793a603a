// Whatever decode() accepts, encode() makes again; parse_image() stays inside its bytes.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "agent/process/guardian_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster::agent::guardian_wire;
    std::string bytes(reinterpret_cast<const char*>(data), size);
    if (const auto message = decode(bytes)) {
        if (encode(*message) != bytes) std::abort();
    }
    if (const auto image = parse_image(bytes)) {
        std::size_t total = 0;
        for (const auto* text : image->argv) total += text != nullptr ? std::strlen(text) + 1 : 0;
        for (const auto* text : image->environment) total += text != nullptr ? std::strlen(text) + 1 : 0;
        total += sizeof(unsigned long) * (image->cpu_mask.size() + image->node_mask.size());
        if (total + 17 != size) std::abort();  // four counts and the ignored signal
    }
    return 0;
}
