// Quotas, and the memory that a peer can make the store hold.
#include "rendezvous/base/text/text.h"
#include "store_fixture.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
using namespace muster::rendezvous::test;

TEST_CASE("A full store closes the connection that wanted more, and keeps serving the others") {
    StoreFixture store({.bytes_max = 10'000});
    auto& greedy = store.open_newer();
    auto& modest = store.open_newer();
    store.tell(greedy, newer.set("/a", std::string(5'000, 'a')));
    CHECK_FALSE(greedy.closed);
    store.tell(greedy, newer.set("/b", std::string(5'000, 'b')));
    REQUIRE(greedy.closed);
    CHECK(greedy.closed->starts_with("SET: the store is full: "));
    CHECK(store.ask(modest, newer.check({"/b"})) == canceled);
    CHECK(store.ask(modest, newer.set("/a", "small") + newer.set("/b", "ok") + newer.get("/b")) == blob("ok"));
    CHECK(store.server.usage().bytes < 1'000);
}

TEST_CASE("A store that shares its budget leaves an eighth of it to the others") {
    const auto budget = std::make_shared<MemoryBudget>(80'000);
    StoreFixture store({.memory = budget});
    auto& half = store.open_newer();
    auto& greedy = store.open_newer();
    store.tell(half, std::string_view(newer.set("/half", std::string(60'000, 'h'))).substr(0, 30'000));
    for (int i = 0; !greedy.closed; ++i) store.tell(greedy, newer.set(cat("/k", i), std::string(700, 'v')));
    CHECK(greedy.closed->find(" of 70000 bytes used") != std::string::npos);
    CHECK(budget->bytes() > 69'000);
    CHECK(budget->has_room(10'000));
    CHECK_FALSE(half.closed);
}

TEST_CASE("Half-received requests count against the bytes, and are given back") {
    StoreFixture store({.bytes_max = 100'000});
    auto& a = store.open_newer();
    auto& b = store.open_newer();
    const auto large = newer.set("/k", std::string(60'000, 'x'));
    store.tell(a, std::string_view(large).substr(0, 55'000));
    CHECK(store.server.usage().bytes >= 55'000);
    store.tell(b, std::string_view(large).substr(0, 55'000));
    REQUIRE(b.closed);
    CHECK(b.closed->starts_with("the store is full: "));
    store.tell(a, std::string_view(large).substr(55'000));
    CHECK_FALSE(a.closed);
    CHECK(store.ask(a, newer.get("/k")).size() == 60'008);
    store.tell(a, newer.key(Operation::delete_key, "/k"));
    CHECK(store.server.usage().bytes == 0);
    auto& c = store.open_newer();
    store.tell(c, std::string_view(large).substr(0, 55'000));
    store.end(c);
    CHECK(store.server.usage().bytes == 0);
}

TEST_CASE("Keys, waits and connections have their quotas, each with its reason") {
    StoreFixture store({.key_count_max = 2, .connection_count_max = 4, .wait_count_max = 3});
    auto& a = store.open_newer();
    store.tell(a, newer.set("/1", "") + newer.set("/2", "") + newer.set("/3", ""));
    CHECK(a.closed.value_or("") == "SET: the store holds 2 keys, its maximum");
    auto& b = store.open_newer();
    store.tell(b, newer.key(Operation::delete_key, "/1") + newer.key(Operation::delete_key, "/2"));
    store.tell(b, newer.wait({"/1", "/2", "/1"}));
    CHECK_FALSE(b.closed);
    auto& c = store.open_newer();
    store.tell(c, newer.wait({"/1"}));
    CHECK(c.closed.value_or("") == "WAIT: 3 keys are being waited for, the maximum");
    auto& d = store.open_newer();
    CHECK(d.connection != nullptr);
    auto& e = store.open();
    CHECK(e.connection == nullptr);
    CHECK(e.closed.value_or("") == "the store serves 4 connections, its maximum");
    CHECK(store.server.usage().wait_count == 3);
    store.end(c);
    CHECK(store.open().connection != nullptr);
}

TEST_CASE("80,000 clients of one store count themselves, wait for one key and for many, and leave") {
    constexpr std::size_t clients = 80'000;
    StoreFixture store;
    std::vector<TestPeer*> peers;
    for (std::size_t i = 0; i < clients; ++i) peers.push_back(&store.open_newer());
    std::int64_t count = 0;
    for (TestPeer* peer : peers) REQUIRE(store.ask(*peer, newer.add("init/", 1)) == i64(++count));
    c10d::Request many;  // the ids of NCCL, one for 128 ranks, as far as a test can afford it
    many.operation = Operation::wait;
    std::vector<std::string> ids;
    for (int i = 0; i < 51; ++i) ids.push_back(cat("/UniqueNCCLID:", i));
    many.keys.assign(ids.begin(), ids.end());
    const auto waits = encoded(c10d::Family::newer, many);
    for (TestPeer* peer : peers) store.tell(*peer, waits);
    CHECK(store.server.usage().wait_count == clients * ids.size());
    CHECK(store.server.usage().bytes < clients * ids.size() * 40);
    for (const auto& id : ids) store.tell(*peers[0], newer.set(id, "id"));
    for (TestPeer* peer : peers) REQUIRE(peer->take() == stop);
    for (TestPeer* peer : peers) store.tell(*peer, newer.wait({"/never"}));
    for (TestPeer* peer : peers) store.end(*peer);
    CHECK(store.server.usage().wait_count == 0);
    CHECK(store.server.usage().connection_count == 0);
}

TEST_CASE("A WAIT that breaks the quota half-way leaves nothing parked") {
    StoreFixture store({.wait_count_max = 2});
    auto& peer = store.open_newer();
    store.tell(peer, newer.wait({"/1", "/2", "/3"}));
    CHECK(peer.closed);
    CHECK(store.server.usage().wait_count == 0);
    CHECK(store.server.usage().bytes == 0);
}

TEST_CASE("A peer that asks for much is served on only when its replies have been written") {
    StoreFixture store({.output_bytes_pause = 1'000});
    auto& peer = store.open_newer();
    store.tell(peer, newer.set("/k", std::string(600, 'v')));
    std::string requests;
    for (int i = 0; i < 5; ++i) requests += newer.get("/k");
    store.tell(peer, requests + "\x63");
    CHECK(peer.flow == StoreFlow::paused);
    CHECK(peer.take().size() == 2 * 608);
    peer.flow = store.server.resume(*peer.connection, store.now);
    CHECK(peer.flow == StoreFlow::paused);
    CHECK(peer.take().size() == 2 * 608);
    peer.flow = store.server.resume(*peer.connection, store.now);
    CHECK(peer.take().size() == 608);
    CHECK(peer.flow == StoreFlow::closed);
    CHECK(peer.closed.value_or("") == "unknown operation 99");
}

TEST_CASE("What a paused peer has asked for counts against the bytes until it is served") {
    StoreFixture store({.bytes_max = 20'000, .output_bytes_pause = 500});
    auto& peer = store.open_newer();
    store.tell(peer, newer.set("/k", std::string(600, 'v')));
    const auto before = store.server.usage().bytes;
    std::string requests = newer.get("/k");
    for (int i = 0; i < 50; ++i) requests += newer.bare(c10d::Operation::num_keys);
    store.tell(peer, requests);
    REQUIRE(peer.flow == StoreFlow::paused);
    CHECK(store.server.usage().bytes == before + 50);
    peer.flow = store.server.resume(*peer.connection, store.now);
    CHECK(peer.flow == StoreFlow::read);
    CHECK(store.server.usage().bytes == before);
    // More than there is room for closes the connection, as a half-received request does.
    for (int i = 0; i < 20'000; ++i) requests += newer.bare(c10d::Operation::num_keys);
    store.tell(peer, requests);
    CHECK(peer.flow == StoreFlow::closed);
    CHECK(peer.closed.value_or("").starts_with("the store is full"));
    CHECK(store.server.usage().bytes == before);
}

TEST_CASE("A small value after a large one does not keep the large one's memory in the account") {
    StoreFixture store;
    auto& peer = store.open_newer();
    store.tell(peer, newer.set("/k", std::string(1'000'000, 'x')) + newer.set("/k", "y"));
    CHECK(store.server.usage().bytes < 1'000);
}

TEST_CASE("Room for a large value grows with what has come of it, not with what was announced") {
    StoreFixture store;
    auto& peer = store.open_newer();
    const auto request = newer.set("/k", std::string(8'000'000, 'v'));
    CHECK(store.server.landing(*peer.connection).empty());
    store.tell(peer, std::string_view(request).substr(0, 20));
    CHECK(store.server.landing(*peer.connection).size() <= 64 * 1024);
    for (std::size_t sent = 20; sent < request.size();) {
        const auto room = store.server.landing(*peer.connection).size();
        CHECK(room <= std::max<std::size_t>(64 * 1024, 4 * sent));
        // The room is charged before a byte has come.
        CHECK(store.server.usage().bytes >= sent - 20 + room);
        CHECK(store.server.usage().bytes <= std::max<std::size_t>(64 * 1024 + 20, 4 * sent) + 1'000);
        store.pour(peer, std::string_view(request).substr(sent, room));
        sent += room;
    }
    CHECK(store.server.landing(*peer.connection).empty());
    CHECK(store.ask(peer, newer.get("/k")).size() == 8 + 8'000'000);
}

TEST_CASE("A value that takes the place of a much larger one does not hold its memory") {
    StoreFixture store;
    auto& peer = store.open_newer();
    store.tell(peer, newer.set("/k", std::string(1'000'000, 'x')) + newer.set("/k", "y"));
    // The million bytes are kept for the next large value, which this one is not.
    const auto request = newer.set("/small", std::string(70'000, 's'));
    store.tell(peer, std::string_view(request).substr(0, 100));
    CHECK(store.server.landing(*peer.connection).size() < 70'000);
    store.pour(peer, std::string_view(request).substr(100));
    CHECK(store.ask(peer, newer.get("/small")).substr(8) == std::string(70'000, 's'));
}

TEST_CASE("The driver hears how many bytes are missing from a request, and that any may matter between requests") {
    StoreFixture store;
    auto& peer = store.open_newer();
    CHECK(store.server.missing_bytes(*peer.connection) == 0);
    const auto request = newer.set("/k", std::string(100'000, 'v'));
    store.tell(peer, std::string_view(request).substr(0, 5));
    CHECK(store.server.missing_bytes(*peer.connection) == 4);
    store.tell(peer, std::string_view(request).substr(5, 95));
    CHECK(store.server.missing_bytes(*peer.connection) == request.size() - 100);
    store.tell(peer, std::string_view(request).substr(100));
    CHECK(store.server.missing_bytes(*peer.connection) == 0);
}

TEST_CASE("A value that replies hold is charged until the last of them is gone, however it left the map") {
    const std::string big(5'000, 'v');
    for (const auto& removal :
         {newer.key(Operation::delete_key, "/k"), newer.set("/k", "small"), newer.put(Operation::append, "/k", "x")}) {
        StoreFixture store({.bytes_max = 100'000});
        auto& peer = store.open_newer();
        store.tell(peer, newer.set("/k", big));
        std::vector<SharedValue> held;
        peer.kept = &held;
        store.tell(peer, newer.get("/k"));
        REQUIRE(held.size() == 1);
        store.tell(peer, removal);
        CHECK(store.server.usage().bytes >= big.size());
        held.clear();
        const auto left = store.server.usage().bytes;
        CHECK(left < (removal == newer.put(Operation::append, "/k", "x") ? 2 * big.size() : big.size()));
    }
}

TEST_CASE("What a parked wait holds counts against the bytes until it ends, however it ends") {
    const std::string long_key(4'000, 'k');
    std::vector<std::string> names;
    for (int i = 0; i < 50; ++i) names.push_back(cat(i, long_key));
    const auto wait_get = [&](std::string_view missing) {
        c10d::Request request;
        request.operation = Operation::wait_get;
        request.keys.assign(names.begin(), names.end());
        request.keys.push_back(missing);
        return encoded(c10d::Family::newer, request);
    };
    StoreFixture store({.bytes_max = 900'000});
    auto& writer = store.open_newer();
    for (const auto& name : names) store.tell(writer, newer.set(name, "v"));
    const auto before = store.server.usage().bytes;
    auto& a = store.open_newer();
    store.tell(a, wait_get("/missing"));
    CHECK_FALSE(a.closed);
    CHECK(store.server.usage().bytes >= before + 50 * 4'000);
    auto& b = store.open_newer();
    store.tell(b, wait_get("/missing"));
    auto& c = store.open_newer();
    store.tell(c, wait_get("/missing"));
    auto& d = store.open_newer();
    store.tell(d, wait_get("/missing"));
    REQUIRE(d.closed);
    CHECK(d.closed->starts_with("WAIT_GET: the store is full: "));
    CHECK_FALSE(c.closed);
    // One is cancelled, one goes, one is released.
    CHECK(store.ask(a, newer.bare(Operation::cancel_wait)) == canceled);
    store.end(b);
    store.tell(writer, newer.set("/missing", "v"));
    CHECK(c.take().size() == 1 + 51 * 9);
    store.tell(writer, newer.key(Operation::delete_key, "/missing"));
    CHECK(store.server.usage().bytes == before);
    CHECK(store.server.usage().wait_count == 0);
}

TEST_CASE("A wait for many keys holds no memory after it was released") {
    StoreFixture store;
    auto& peer = store.open_newer();
    std::vector<std::string> names;
    for (int i = 0; i < 2'000; ++i) names.push_back(cat("/", i));
    c10d::Request request;
    request.operation = Operation::wait;
    request.keys.assign(names.begin(), names.end());
    store.tell(peer, encoded(c10d::Family::newer, request));
    const auto parked = store.server.usage().bytes;
    CHECK(parked >= 2'000 * (192 + 32));
    auto& writer = store.open_newer();
    for (const auto& name : names) store.tell(writer, newer.set(name, ""));
    for (const auto& name : names) store.tell(writer, newer.key(Operation::delete_key, name));
    CHECK(peer.take() == stop);
    CHECK(store.server.usage().bytes == 0);
}
