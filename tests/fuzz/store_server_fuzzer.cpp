// The whole store core: two connections get the input in two ways, whole and in small pieces, on stores of their own.
// Both must end alike, and nothing may be left parked or charged when the connections are gone.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/check.h"
#include "rendezvous/core/store_server.h"

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

void play(std::string_view bytes, std::size_t chunk, Recorder& recorder) {
    StoreServer store({.bytes_max = 1 << 20, .key_count_max = 1'000, .wait_count_max = 1'000});
    const muster::Instant now{};
    StoreConnection& connection = *store.accept(recorder, "10.0.0.1", now);
    StoreFlow flow = StoreFlow::read;
    while (!bytes.empty() && flow != StoreFlow::closed && recorder.output.size() < (1 << 24)) {
        flow = store.receive(connection, bytes.substr(0, chunk), now);
        while (flow == StoreFlow::paused) flow = store.resume(connection, now);
        bytes.remove_prefix(std::min(chunk, bytes.size()));
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
    play(bytes, bytes.size() + 1, whole);
    Recorder pieces;
    play(bytes, 1 + data[0] % 16, pieces);
    MUSTER_CHECK(whole.output == pieces.output, whole.output.size(), pieces.output.size());
    return 0;
}
