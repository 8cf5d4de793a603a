// The agent-worker channel's decoder: whatever it accepts must encode to the same bytes again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/check.h"
#include "rendezvous/wire/local/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster::local;
    const std::string_view datagram(reinterpret_cast<const char*>(data), size);
    for (const Sender sender : {Sender::worker, Sender::agent}) {
        const auto message = decode(datagram, sender);
        if (message.has_value()) MUSTER_CHECK(encode(message.value()) == datagram, size);
    }
    return 0;
}
