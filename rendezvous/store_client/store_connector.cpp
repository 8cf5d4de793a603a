#include "rendezvous/store_client/store_connector.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/sockets/reachable.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

using std::chrono::steady_clock;

// How long a call waits for the server to acknowledge the cancellation of its wait. A server that stands still for
// longer is waited for by the next call.
constexpr Duration cancel_timeout = 1s;

Result<OpenStore> open_with(const SocketAddress& address, StoreClientCore::Greeting greeting, Instant deadline) {
    auto socket = BlockingSocket::connect(address, deadline);
    if (!socket) return socket.error();
    OpenStore store{std::move(*socket), {}, address};
    const auto hello = store.core.open(greeting, static_cast<std::uint32_t>(::getpid()));
    if (auto opened = run_exchange(store.socket, store.core, hello, deadline); !opened)
        return with_context(opened.error(), address.numeric());
    return store;
}

/// Connects to one address, with the handshake. If the server closes the connection because of PING, tries again
/// without it.
Result<OpenStore> open_store(const SocketAddress& address, Instant deadline) {
    auto store = open_with(address, StoreClientCore::Greeting::with_ping, deadline);
    if (store || store.error().code != Errc::peer_closed) return store;
    return open_with(address, StoreClientCore::Greeting::without_ping, deadline);
}

}  // namespace

Result<void> run_exchange(BlockingSocket& socket, StoreClientCore& core, std::string_view bytes, Instant deadline) {
    using Progress = StoreClientCore::Progress;
    if (auto sent = socket.send(bytes, deadline); !sent) {
        core.fail(sent.error());
        return core.error();
    }
    auto progress = core.progress();
    while (progress == Progress::more) {
        auto received = socket.receive(deadline);
        if (received) {
            progress = core.receive(*received);
        } else if (received.error().code == Errc::timed_out) {
            const auto cancel = core.timed_out();
            if (core.is_cancelling() && cancel.empty())
                return Error{Errc::timed_out, "the store has not answered in time"};
            deadline = steady_clock::now() + cancel_timeout;
            if (auto sent = socket.send(cancel, deadline); !sent) core.fail(sent.error());
            progress = core.progress();
        } else {
            core.closed(received.error().context);
            progress = core.progress();
        }
    }
    if (progress == Progress::failed) return core.error();
    if (progress == Progress::expired) return Error{Errc::timed_out, "what it waits for did not come in time"};
    return {};
}

Result<OpenStore> connect_store(const Endpoint& endpoint, const StoreClientOptions& options) {
    const Instant deadline = steady_clock::now() + options.connect_timeout;
    std::mt19937_64 random(std::random_device{}());
    Duration backoff = options.backoff_min;
    for (;;) {
        std::vector<std::string> tried;
        const auto addresses = look_up(endpoint, deadline);
        if (!addresses) tried.push_back(addresses.error().context);
        const auto attempt_ends = std::min(deadline, steady_clock::now() + options.attempt_timeout);
        for (const auto& address :
             addresses ? reachable_first(*addresses, attempt_ends) : std::vector<SocketAddress>{}) {
            auto store = open_store(address, std::min(deadline, steady_clock::now() + options.attempt_timeout));
            if (store) return store;
            tried.push_back(store.error().context);
        }
        const auto jitter =
            Duration(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(backoff.count() / 4 + 1)));
        if (steady_clock::now() + backoff + jitter >= deadline)
            return Error{Errc::unreachable, cat("no store at ", describe(endpoint), " within ",
                                                describe(options.connect_timeout), ": ", join(tried, "; "))};
        std::this_thread::sleep_for(backoff + jitter);
        backoff = std::min(backoff * 2, options.backoff_max);
    }
}

}  // namespace muster::rendezvous
