// The agents' protocol: any stream, cut anywhere, gives messages and perhaps an error; what was accepted says the same
// again when it is sent on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/check.h"
#include "rendezvous/wire/native/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster::native;
    if (size < 2) return 0;
    const auto sender = static_cast<Sender>(data[0] % 3);
    std::string_view stream(reinterpret_cast<const char*>(data) + 2, size - 2);
    const std::size_t piece = std::max<std::size_t>(data[1], 1);
    FrameReader reader(sender);
    while (!stream.empty()) {
        reader.append(stream.substr(0, piece));
        stream.remove_prefix(std::min(piece, stream.size()));
        for (;;) {
            auto message = reader.next();
            if (message.has_error()) return 0;
            if (!message.value()) break;
            std::string bytes;
            append_frame(bytes, *message.value());
            FrameReader again(sender);
            again.append(bytes);
            auto same = again.next();
            MUSTER_CHECK(same.has_value() && same.value() == message.value(), name(*message.value()));
        }
    }
    return 0;
}
