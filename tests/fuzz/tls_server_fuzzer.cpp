// The daemon's side of TLS: whatever comes in whatever pieces, nothing but the handshake's answer or an alert goes out,
// and no plain byte comes out. The names that a client has for its key are part of it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/tls/psk_channel.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster::rendezvous;
    static const JobKeys keys = [](std::string_view) { return std::vector{JobKey(32, 'a'), JobKey(32, 'b')}; };
    static const auto context =
        PskContext::server([](std::string_view identity) { return find_control_key(keys, identity); });
    if (size < 2) return 0;
    std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
    (void)find_control_key(keys, stream);
    const std::size_t piece = std::max<std::size_t>(data[0], 1) * 4;
    PskChannel server(context);
    std::array<char, 1'024> place;
    while (!stream.empty() && server.state() == PskChannel::State::shaking) {
        auto wire = stream.substr(0, piece);
        stream.remove_prefix(wire.size());
        const auto plain = server.read(wire, place);
        MUSTER_CHECK(plain == 0 && server.state() != PskChannel::State::open, plain);
        MUSTER_CHECK(server.output().size() < 4'096, server.output().size());
    }
    return 0;
}
