// The agent-worker channel's decoder: whatever it accepts must encode to the same bytes again, or to the same message
// if it is the Hello of another version, which may be shorter or longer than ours.
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
        if (!message) continue;
        const auto bytes = encode(*message);
        const auto* hello = std::get_if<Hello>(&*message);
        if (hello != nullptr && hello->version != protocol_version)
            MUSTER_CHECK(decode(bytes, sender).value() == *message, size);
        else
            MUSTER_CHECK(bytes == datagram, size);
    }
    return 0;
}
