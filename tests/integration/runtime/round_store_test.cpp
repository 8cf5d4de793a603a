// How ranks meet at the launcher's store, also where that is far away.
#include "worker_runtime/context/round_store.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/servers/round_store.h"
#include "tests/support/catch.h"

using namespace muster;
using muster::runtime::MeetingWait;
using muster::runtime::ParentGroup;

namespace {

/// Far more than a rank lets pass between two looks.
constexpr Duration way_of_a_message = 20ms;

sockaddr_in on_loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/// Passes on what comes over one connection, each piece so much later.
class LongWay {
  public:
    explicit LongWay(std::uint16_t to) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in here = on_loopback(0);
        socklen_t size = sizeof here;
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&here), size) == 0);
        REQUIRE(::listen(listener_.get(), 1) == 0);
        REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&here), &size) == 0);
        port = ntohs(here.sin_port);
        there_ = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_in address = on_loopback(to);
        REQUIRE(::connect(there_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        out_ = std::thread([this] {
            here_ = FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            back_ = std::thread([this] { pass_on(there_.get(), here_.get()); });
            pass_on(here_.get(), there_.get());
        });
    }
    LongWay(const LongWay&) = delete;
    LongWay& operator=(const LongWay&) = delete;
    /// Once the client has gone.
    ~LongWay() {
        out_.join();
        back_.join();
    }

    std::uint16_t port = 0;

  private:
    static void pass_on(int from, int to) {
        std::array<char, 4096> bytes;
        for (;;) {
            const auto count = ::recv(from, bytes.data(), bytes.size(), 0);
            if (count <= 0) break;
            std::this_thread::sleep_for(way_of_a_message);
            if (::send(to, bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL) != count) break;
        }
        ::shutdown(to, SHUT_RDWR);
        ::shutdown(from, SHUT_RDWR);
    }

    FileDescriptor listener_, there_, here_;
    std::thread out_, back_;
};

runtime::RoundStore client_of(std::uint16_t port) {
    return {rendezvous::StoreClient::connect({"127.0.0.1", port}).value(), "round/"};
}

Instant in(Duration time) {
    return std::chrono::steady_clock::now() + time;
}

struct ServedStore {
    ServedStore() : served(rendezvous::RoundStore::open(loop, {}).value()) { loop.start_thread(); }
    ~ServedStore() { served.reset(); }
    rendezvous::EventLoop loop;
    std::unique_ptr<rendezvous::RoundStore> served;
};

}  // namespace

TEST_CASE("ranks that make a part meet at a store whose answers take longer than they wait between two looks") {
    ServedStore store;
    LongWay way(store.served->port());
    auto far = client_of(way.port);
    auto near = client_of(store.served->port());
    // The first when the far rank has looked several times, which has then seen that the second is not there either.
    std::atomic<int> looks = 0;
    const auto parent = std::make_shared<ParentGroup>(
        [&]() -> Result<void> {
            if (++looks == 3) (void)near.publish("1", "one", {});
            if (looks == 6) (void)near.publish("2", "two", {});
            return {};
        },
        2);
    REQUIRE(far.publish("0", "zero", {}).has_value());
    const auto met = far.collect({"0", "1", "2"}, MeetingWait(in(60s), parent));
    REQUIRE(met.has_value());
    CHECK(*met == std::vector<std::string>{"zero", "one", "two"});
    CHECK(looks == 6);
}

TEST_CASE("ranks that make a part stop to wait for others when its communicator ends, and the store serves on") {
    ServedStore store;
    auto ranks = client_of(store.served->port());
    int looks = 0;
    const auto parent = std::make_shared<ParentGroup>(
        [&]() -> Result<void> {
            return ++looks < 4 ? Result<void>() : Error{Errc::peer_closed, "rank 1 died"};
        },
        2);
    const auto met = ranks.collect({"0"}, MeetingWait(in(60s), parent));
    REQUIRE_FALSE(met.has_value());
    CHECK(met.error().context == "rank 1 died");
    CHECK(ranks.add("n", 2).value() == 2);
}

TEST_CASE("who does not come to a meeting at the store by its deadline is named, with a parent and without") {
    ServedStore store;
    auto ranks = client_of(store.served->port());
    REQUIRE(ranks.publish("0", "zero", {}).has_value());
    const auto quiet = std::make_shared<ParentGroup>([] { return Result<void>(); }, 2);
    for (const auto& parent : {std::shared_ptr<ParentGroup>(), quiet}) {
        const auto met = ranks.collect({"0", "1", "2"}, MeetingWait(in(4s), parent));
        REQUIRE_FALSE(met.has_value());
        CHECK(met.error().code == Errc::timed_out);
        CHECK(met.error().context == "1 was not published");
    }
}
