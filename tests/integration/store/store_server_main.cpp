// A store on a loopback port and nothing else, for tests and benchmarks: prints "port N", serves until stdin ends. With
// --relay, N is the port of a relay to it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/servers/round_store.h"
#include "rendezvous/servers/store_relay.h"

int main(int argc, char** argv) {
    using namespace muster;
    using namespace muster::rendezvous;
    const bool relays = argc > 1 && std::string_view(argv[1]) == "--relay";
    const auto port = static_cast<std::uint16_t>(argc > 1 && !relays ? std::atoi(argv[1]) : 0);
    EventLoop loop;
    RoundStoreConfig config;
    config.listen.ports = {port, port};
    const auto store = RoundStore::open(loop, std::move(config));
    if (!store) {
        std::fprintf(stderr, "store_server: %s\n", describe(store.error()).c_str());
        return 1;
    }
    const auto relay = StoreRelay::open(loop, {.store = {"127.0.0.1", (*store)->port()}, .limits = {}});
    if (!relay) {
        std::fprintf(stderr, "store_server: %s\n", describe(relay.error()).c_str());
        return 1;
    }
    std::printf("port %u\n", unsigned{(relays ? (*relay)->port() : (*store)->port())});
    std::fflush(stdout);
    loop.start_thread();
    char ignored[256];
    while (::read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
    }
    return 0;
}
