// A process that was kept, and is asked to leave its round again before the ranks have met.
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/servers/round_store.h"
#include "rendezvous/wire/local/codec.h"
#include "tests/support/catch.h"
#include "worker_runtime/context/context_body.h"
#include "worker_runtime/tcp/mesh/tcp_hello.h"

using namespace muster;

namespace {

constexpr int patience_ms = 60'000;

struct ServedStore {
    ServedStore() : served(rendezvous::RoundStore::open(loop, {}).value()) { loop.start_thread(); }
    ~ServedStore() { served.reset(); }
    rendezvous::EventLoop loop;
    std::unique_ptr<rendezvous::RoundStore> served;
};

FileDescriptor listening(int kind, const sockaddr* address, socklen_t size) {
    FileDescriptor listener(::socket(address->sa_family, kind | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listener.get(), address, size) == 0);
    REQUIRE(::listen(listener.get(), 16) == 0);
    return listener;
}

bool is_readable(const FileDescriptor& descriptor) {
    pollfd polled{descriptor.get(), POLLIN, 0};
    return ::poll(&polled, 1, patience_ms) == 1;
}

/// The door of a rank whose node vanishes: connections are made, and nothing answers.
struct SilentDoor {
    SilentDoor() {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listener = listening(SOCK_STREAM, reinterpret_cast<const sockaddr*>(&address), sizeof address);
        socklen_t size = sizeof address;
        REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        port = ntohs(address.sin_port);
    }
    FileDescriptor listener;
    std::uint16_t port = 0;
};

FileDescriptor agents_end(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return listening(SOCK_SEQPACKET, reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace

TEST_CASE("a kept process leaves the meeting of its next round when that round ends while a rank does not answer") {
    ServedStore store;
    const SilentDoor vanished;
    const auto agent_name = cat("muster-hold-test-", ::getpid());
    const auto agent = agents_end(agent_name);
    const std::map<std::string, std::string> environment{{"RANK", "0"},
                                                         {"WORLD_SIZE", "2"},
                                                         {"LOCAL_RANK", "0"},
                                                         {"LOCAL_WORLD_SIZE", "1"},
                                                         {"MASTER_ADDR", "127.0.0.1"},
                                                         {"MASTER_PORT", cat(store.served->port())},
                                                         {"TORCHELASTIC_RUN_ID", "job"},
                                                         {"TORCHELASTIC_RESTART_COUNT", "1"},
                                                         {"MUSTER_ROUND", "1"},
                                                         {"MUSTER_AGENT_SOCKET", cat("@", agent_name)}};
    for (const auto& [name, value] : environment) REQUIRE(::setenv(name.c_str(), value.c_str(), 1) == 0);
    const runtime::TcpCard card{.places = {{"127.0.0.1", vanished.port}}, .pid = ::getpid(), .host = "vanished"};
    auto client = rendezvous::StoreClient::connect({"127.0.0.1", store.served->port()}).value();
    REQUIRE(client.set("muster/job/1/1/2/meeting/world/tcp/1", runtime::encode(card)).has_value());

    FileDescriptor channel;
    std::thread asks([&] {
        if (!is_readable(agent)) return;
        channel = FileDescriptor(::accept4(agent.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!is_readable(vanished.listener)) return;  // the ranks connect now
        const auto hold = local::encode(local::Hold{.limit_ms = 5000, .why = "node 1 is lost"});
        (void)::send(channel.get(), hold.data(), hold.size(), MSG_NOSIGNAL);
    });
    Result<void> opened;
    {
        runtime::ContextBody body;
        body.can_rejoin = true;
        body.options = {.meeting_timeout = 60s, .transport = TransportChoice::tcp};
        opened = body.open();
        asks.join();
        CHECK(body.word.state() == runtime::RoundWord::State::hold);
    }
    for (const auto& [name, value] : environment) ::unsetenv(name.c_str());
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == Errc::round_ended);
    CHECK(opened.error().context.find("node 1 is lost") != std::string::npos);
}
