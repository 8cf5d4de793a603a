// Clients behind a relay: each is served as if it had a connection of its own.
#include <map>

#include "rendezvous/wire/c10d/relay.h"
#include "store_fixture.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
using namespace muster::rendezvous::test;

namespace {

std::string frame(std::uint32_t client, std::string_view bytes) {
    std::string out;
    c10d::append_relay_header(out, client, static_cast<std::uint32_t>(bytes.size()));
    return out.append(bytes);
}

/// A relay with its clients' answers, taken apart again.
class Relay {
  public:
    explicit Relay(StoreFixture& store) : store_(store), peer_(store.open()) {
        store_.tell(peer_, c10d::relay_handshake());
    }

    void say(std::uint32_t client, std::string_view bytes) { store_.tell(peer_, frame(client, bytes)); }
    void greet(std::uint32_t client) { say(client, handshake); }
    void leave(std::uint32_t client) { say(client, {}); }
    /// The answers of this client since the last call; "END" for its end.
    std::string heard(std::uint32_t client) {
        const auto output = peer_.take();
        std::string_view bytes = output;
        while (const auto piece = reader_.next(bytes))
            answers_[piece->client] += piece->bytes.empty() ? std::string_view("END") : piece->bytes;
        return std::exchange(answers_[client], {});
    }
    [[nodiscard]] TestPeer& peer() { return peer_; }

  private:
    StoreFixture& store_;
    TestPeer& peer_;
    c10d::RelayReader reader_;
    std::map<std::uint32_t, std::string> answers_;
};

}  // namespace

TEST_CASE("Clients of a relay wait, are released and cancel by themselves, each in its own family") {
    StoreFixture store;
    Relay relay(store);
    for (const std::uint32_t client : {1U, 2U, 3U}) relay.greet(client);
    relay.say(1, newer.wait({"/a"}));
    relay.say(2, newer.wait_get({"/b"}));
    relay.say(3, newer.wait({"/a", "/b"}) + newer.bare(Operation::cancel_wait) + newer.add("/n", 2));
    CHECK(relay.heard(1).empty());
    CHECK(relay.heard(2).empty());
    CHECK(relay.heard(3) == canceled + i64(2));
    relay.say(9, older.set("/a", "1") + older.get("/a"));
    CHECK(relay.heard(9) == blob("1"));
    CHECK(relay.heard(1) == stop);
    auto& direct = store.open_newer();
    store.tell(direct, newer.set("/b", std::string(5'000, 'b')));
    CHECK(relay.heard(2) == stop + blob(std::string(5'000, 'b')));
    CHECK(store.server.usage().connection_count == 6);
}

TEST_CASE("A client that leaves its relay waits no more; a relay that ends takes all its clients along") {
    StoreFixture store;
    Relay relay(store);
    for (const std::uint32_t client : {1U, 2U, 3U}) {
        relay.greet(client);
        relay.say(client, newer.wait({"/never"}));
    }
    CHECK(store.server.usage().wait_count == 3);
    relay.leave(2);
    relay.leave(2);
    relay.leave(77);
    CHECK(store.server.usage().wait_count == 2);
    CHECK(relay.heard(2).empty());
    relay.greet(4);
    const auto half = newer.set("/k", std::string(60'000, 'x'));
    relay.say(4, std::string_view(half).substr(0, 50'000));
    CHECK(store.server.usage().bytes > 50'000);
    store.end(relay.peer());
    CHECK(store.server.usage().connection_count == 0);
    CHECK(store.server.usage().wait_count == 0);
    CHECK(store.server.usage().bytes == 0);
}

TEST_CASE("A client that breaks the protocol is closed alone, and its relay is told") {
    StoreFixture store;
    Relay relay(store);
    relay.greet(1);
    relay.greet(2);
    relay.say(1, "\x63 no operation");
    CHECK(relay.heard(1) == "END");
    relay.say(1, newer.add("/n", 1));
    CHECK(relay.heard(1).empty());
    relay.leave(1);
    relay.say(2, newer.add("/n", 1));
    CHECK(relay.heard(2) == i64(1));
    CHECK_FALSE(relay.peer().closed);
}

TEST_CASE("Frames may come byte by byte, and many at once") {
    StoreFixture store;
    auto& peer = store.open();
    std::string all = c10d::relay_handshake();
    for (std::uint32_t client = 1; client <= 20; ++client)
        all += frame(client, handshake) + frame(client, newer.add("/n", 1));
    for (const char byte : all) store.tell(peer, {&byte, 1});
    std::string expected;
    for (std::uint32_t client = 1; client <= 20; ++client) expected += frame(client, i64(client));
    CHECK(peer.take() == expected);
    auto& second = store.open();
    store.tell(second, all);
    CHECK(second.take().size() == expected.size());
}

TEST_CASE("A client with too many unwritten answers pauses its relay until they are out, and loses none") {
    StoreFixture store({.output_bytes_pause = 10'000});
    Relay relay(store);
    relay.greet(1);
    relay.greet(2);
    relay.say(1, newer.set("/v", std::string(4'000, 'v')));
    std::string many;
    for (int i = 0; i < 10; ++i) many += newer.get("/v");
    store.tell(relay.peer(), frame(1, many) + frame(2, newer.add("/n", 1)));
    CHECK(relay.peer().flow == StoreFlow::paused);
    std::string first, second;
    for (int turns = 0; relay.peer().flow == StoreFlow::paused; ++turns) {
        REQUIRE(turns < 10);
        first += relay.heard(1);
        relay.peer().flow = store.server.resume(*relay.peer().connection, store.now);
    }
    first += relay.heard(1);
    second = relay.heard(2);
    CHECK(second == i64(1));
    std::string expected;
    for (int i = 0; i < 10; ++i) expected += blob(std::string(4'000, 'v'));
    CHECK(first == expected);
    CHECK(store.ask(store.open_newer(), newer.get("/n")) == blob("1"));
}

TEST_CASE("Many answers of one read pause a relay as those of one client do") {
    StoreFixture store({.output_bytes_pause = 10'000});
    Relay relay(store);
    store.tell(store.open_newer(), newer.set("/v", std::string(4'000, 'v')));
    std::string all;
    for (std::uint32_t client = 1; client <= 10; ++client) all += frame(client, handshake + newer.get("/v"));
    store.tell(relay.peer(), all);
    std::map<std::uint32_t, std::string> answers;
    for (int turns = 0; relay.peer().flow == StoreFlow::paused; ++turns) {
        REQUIRE(turns < 10);
        CHECK(relay.peer().output.size() < 15'000);
        for (std::uint32_t client = 1; client <= 10; ++client) answers[client] += relay.heard(client);
        relay.peer().flow = store.server.resume(*relay.peer().connection, store.now);
    }
    CHECK(relay.peer().output.size() < 15'000);
    for (std::uint32_t client = 1; client <= 10; ++client)
        CHECK(answers[client] + relay.heard(client) == blob(std::string(4'000, 'v')));
}

TEST_CASE("A relay with too many clients is closed, be they too many for one relay or for the store") {
    StoreFixture store({.connection_count_max = 2, .relayed_count_max = 3, .relayed_per_relay_max = 2});
    Relay greedy(store);
    Relay modest(store);
    modest.greet(1);
    for (const std::uint32_t client : {1U, 2U, 3U}) greedy.greet(client);
    CHECK(greedy.peer().closed.value_or("").find("it has 2 clients") != std::string::npos);
    CHECK(store.server.usage().connection_count == 3);
    store.end(greedy.peer());
    modest.greet(2);
    modest.leave(2);
    modest.greet(3);
    modest.say(3, newer.add("/n", 1));
    CHECK(modest.heard(3) == i64(1));
    Relay third(store);
    third.greet(1);
    third.greet(2);
    CHECK(third.peer().closed.value_or("").find("serves 3 clients of relays") != std::string::npos);
    CHECK_FALSE(modest.peer().closed);
}

TEST_CASE("Clients of relays are charged, and a store without room for one closes its relay") {
    StoreFixture store({.bytes_max = 100'000});
    Relay relay(store);
    for (std::uint32_t client = 1; client <= 50; ++client) relay.greet(client);
    CHECK(store.server.usage().bytes > 50 * 400);
    for (std::uint32_t client = 1; client <= 50; ++client) relay.leave(client);
    CHECK(store.server.usage().bytes == 0);
    for (std::uint32_t client = 1; client <= 1'000 && !relay.peer().closed; ++client) relay.greet(client);
    CHECK(relay.peer().closed.value_or("").find("the store is full") != std::string::npos);
    CHECK(store.server.usage().bytes == 0);
}

TEST_CASE("A client of a relay cannot be a relay") {
    StoreFixture store;
    Relay relay(store);
    relay.say(1, c10d::relay_handshake() + frame(1, handshake + newer.wait({"/k"})));
    CHECK(relay.heard(1) == "END");
    CHECK(store.server.usage().wait_count == 0);
    relay.leave(1);
    store.tell(store.open_newer(), newer.set("/k", "v"));
    CHECK(relay.peer().take().empty());
}

TEST_CASE("Relays in relays do not use up the stack") {
    constexpr std::size_t depth = 200'000;
    const auto magic = c10d::relay_handshake();
    const auto level_bytes = magic.size() + frame(1, {}).size();
    std::string all;
    for (std::size_t inside = depth; inside-- > 0;) {
        all += magic;
        c10d::append_relay_header(all, 1, static_cast<std::uint32_t>(inside * level_bytes + magic.size()));
    }
    StoreFixture store;
    auto& peer = store.open();
    store.tell(peer, all + magic);
    CHECK(peer.take() == frame(1, {}));
    CHECK(store.server.usage().connection_count == 2);
}

TEST_CASE("A new round of the static back end closes relays, too") {
    StoreFixture store;
    Relay relay(store);
    relay.greet(1);
    store.server.clear("a new round");
    CHECK(relay.peer().closed == "a new round");
    CHECK(relay.heard(1).empty());
    store.end(relay.peer());
    CHECK(store.server.usage().connection_count == 0);
}
