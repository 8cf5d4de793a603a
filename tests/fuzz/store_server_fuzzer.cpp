// The whole store core: three connections get the input in three ways, whole, in small pieces, and these read to where
// they belong (landing), on stores of their own. All must end alike, and nothing may be left parked or charged when the
// connections are gone.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/check.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/wire/c10d/relay.h"

namespace {

using namespace muster::rendezvous;

class Recorder final : public StorePeer {
  public:
    void send(std::string_view bytes) override { output += bytes; }
    void send(SharedValue value) override { output += *value; }
    void close(std::string why) override { closed = std::move(why); }
    std::string output;
    std::string closed;
};

enum class Way { given, landed };

void play(std::string_view bytes, std::size_t chunk, Way way, Recorder& recorder) {
    StoreServer store({.bytes_max = 1 << 20, .key_count_max = 1'000, .wait_count_max = 1'000});
    const muster::Instant now{};
    StoreConnection& connection = *store.accept(recorder, "10.0.0.1", now);
    StoreFlow flow = StoreFlow::read;
    while (!bytes.empty() && flow != StoreFlow::closed && recorder.output.size() < (1 << 24)) {
        const auto place = way == Way::landed ? store.landing(connection) : std::span<char>{};
        const auto piece = bytes.substr(0, place.empty() ? chunk : std::min(chunk, place.size()));
        piece.copy(place.data(), place.size());
        flow = place.empty() ? store.receive(connection, piece, now) : store.landed(connection, piece.size(), now);
        while (flow == StoreFlow::paused) flow = store.resume(connection, now);
        bytes.remove_prefix(piece.size());
    }
    store.ended(connection);
    MUSTER_CHECK(store.usage().wait_count == 0 && store.usage().connection_count == 0);
    MUSTER_CHECK(store.usage().bytes <= (1 << 20), store.usage().bytes);
    store.clear("over");
    MUSTER_CHECK(store.usage().bytes == 0, store.usage().bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    Recorder whole;
    play(bytes, bytes.size() + 1, Way::given, whole);
    for (const Way way : {Way::given, Way::landed}) {
        Recorder pieces;
        play(bytes, 1 + data[0] % 16, way, pieces);
        // A relay's frames are cut as its input came.
        const bool is_relay = bytes.starts_with(muster::c10d::relay_handshake());
        MUSTER_CHECK(is_relay || whole.output == pieces.output, whole.output.size(), pieces.output.size());
    }
    return 0;
}
