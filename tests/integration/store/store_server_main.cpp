// A store on a loopback port and nothing else, for tests and benchmarks: prints "port N", serves until stdin ends.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "rendezvous/base/error.h"
#include "rendezvous/servers/round_store.h"

int main(int argc, char** argv) {
    using namespace muster;
    using namespace muster::rendezvous;
    const auto port = static_cast<std::uint16_t>(argc > 1 ? std::atoi(argv[1]) : 0);
    EventLoop loop;
    RoundStoreConfig config;
    config.listen.ports = {port, port};
    const auto store = RoundStore::open(loop, std::move(config));
    if (!store) {
        std::fprintf(stderr, "store_server: %s\n", describe(store.error()).c_str());
        return 1;
    }
    std::printf("port %u\n", unsigned{(*store)->port()});
    std::fflush(stdout);
    loop.start_thread();
    char ignored[256];
    while (::read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
    }
    return 0;
}
