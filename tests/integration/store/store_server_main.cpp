// A store on a loopback port and nothing else, for tests and benchmarks: prints "port N", serves until stdin ends. With
// --relay, N is the port of a relay to it; with --door the relay comes by TLS. The relay has a thread of its own, as on
// another node.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/servers/round_store.h"
#include "rendezvous/servers/store_relay.h"

int main(int argc, char** argv) {
    using namespace muster;
    using namespace muster::rendezvous;
    const std::string_view option = argc > 1 ? argv[1] : "";
    const bool has_door = option == "--door";
    const bool relays = has_door || option == "--relay";
    const std::string key = has_door ? std::string(32, 'k') : std::string();
    const auto port = static_cast<std::uint16_t>(argc > 1 && !relays ? std::atoi(argv[1]) : 0);
    EventLoop loop;
    RoundStoreConfig config;
    config.listen.ports = {port, port};
    config.waits = has_door;
    const auto store = RoundStore::open(loop, std::move(config));
    if (!store) {
        std::fprintf(stderr, "store_server: %s\n", describe(store.error()).c_str());
        return 1;
    }
    if (has_door && !(*store)->serve({.clients = {}, .key = key})) return 1;
    EventLoop relay_loop;
    const auto relay =
        StoreRelay::open(relay_loop, {.store = {"127.0.0.1", (*store)->port()}, .key = key, .limits = {}});
    if (!relay) {
        std::fprintf(stderr, "store_server: %s\n", describe(relay.error()).c_str());
        return 1;
    }
    std::printf("port %u\n", unsigned{(relays ? (*relay)->port() : (*store)->port())});
    std::fflush(stdout);
    loop.start_thread();
    relay_loop.start_thread();
    char ignored[256];
    while (::read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
    }
    return 0;
}
