// The older family (PyTorch 1.9 to 2.0) and how the families are told apart.
#include "store_fixture.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
using namespace muster::rendezvous::test;

TEST_CASE("The older family's nine operations are served without a handshake, one small send at a time") {
    StoreFixture store;
    auto& peer = store.open();
    const auto ask = [&](const std::string& bytes) {
        for (const char byte : bytes) store.tell(peer, std::string_view(&byte, 1));
        return peer.take();
    };
    CHECK(ask(older.add("init/", 1)) == i64(1));
    CHECK(ask(older.set("/k", "v")).empty());
    CHECK(ask(older.get("/k")) == blob("v"));
    CHECK(ask(older.compare_set("/k", "v", "w")) == blob("w"));
    CHECK(ask(older.check({"/k"})) == stop);
    CHECK(ask(older.wait({"/k"})) == stop);
    CHECK(ask(older.bare(Operation::num_keys)) == i64(2));
    CHECK(ask(older.key(Operation::watch_key, "/k")) == "\3");
    CHECK(ask(older.key(Operation::delete_key, "/k")) == i64(1));
    CHECK(ask(std::string("\x09")).empty());
    CHECK(peer.closed.value_or("") == "unknown operation 9");
}

TEST_CASE("An older SET may be a connection's first request") {
    StoreFixture store;
    auto& peer = store.open();
    CHECK(store.ask(peer, older.set("/k", "v") + older.get("/k")) == blob("v"));
}

TEST_CASE("Both families share one map on one port") {
    StoreFixture store;
    auto& old_peer = store.open();
    auto& new_peer = store.open_newer();
    store.tell(old_peer, older.wait({"/k"}));
    store.tell(new_peer, newer.set("/k", "v"));
    CHECK(old_peer.take() == stop);
    CHECK(store.ask(old_peer, older.get("/k")) == blob("v"));
}

TEST_CASE("A new request of the older family cancels its pending wait silently") {
    StoreFixture store;
    auto& peer = store.open();
    CHECK(store.ask(peer, older.wait({"/late"}) + older.bare(Operation::num_keys)) == i64(0));
    store.tell(store.open_newer(), newer.set("/late", "v"));
    CHECK(peer.take().empty());
    CHECK(store.server.usage().wait_count == 0);
}

TEST_CASE("What is of neither family is closed as soon as it can be known") {
    const std::pair<std::string, std::string> cases[] = {
        {"GET / HTTP/1.0\r\n\r\n", "the first byte, 71, is not of the c10d protocol"},
        {std::string("\x00\x01\x02\x03\x04", 5), "neither the handshake of c10d nor a request of its older family"},
        {"\x09", "the first byte, 9, is not of the c10d protocol"},
    };
    for (const auto& [bytes, why] : cases) {
        StoreFixture store;
        auto& peer = store.open();
        store.tell(peer, bytes);
        CHECK(peer.closed.value_or("") == why);
    }
}

TEST_CASE("A connection that shows no family in time is closed; one that has shown it stays") {
    StoreFixture store;
    auto& silent = store.open();
    auto& half = store.open();
    auto& speaking = store.open_newer();
    store.tell(half, handshake.substr(0, 4));
    CHECK(store.server.deadline() == store.now + 5s);
    store.server.elapsed(store.now + 4999ms);
    CHECK_FALSE(silent.closed);
    store.server.elapsed(store.now + 5s);
    CHECK(silent.closed.value_or("") == "no request within 5 s");
    CHECK(half.closed.value_or("") == "no request within 5 s");
    CHECK_FALSE(speaking.closed);
    CHECK(store.server.deadline() == no_deadline);
}

TEST_CASE("A silent connection stays beside a live one of the older family from the same address") {
    StoreFixture store;
    auto& speaking = store.open("10.0.0.1");
    store.tell(speaking, older.add("init/", 1));
    auto& companion = store.open("10.0.0.1");
    auto& stranger = store.open("10.0.0.2");
    store.server.elapsed(store.now + 5s);
    CHECK_FALSE(companion.closed);
    CHECK(stranger.closed);
    CHECK(store.ask(companion, older.key(Operation::watch_key, "/k")) == "\3");

    store.end(speaking);
    store.end(companion);
    auto& late = store.open("10.0.0.1");
    store.server.elapsed(store.now + 10s);
    CHECK(late.closed);
}

TEST_CASE("A fresh store has an empty map and no connection that has spoken to the old one") {
    StoreFixture store;
    auto& writer = store.open_newer();
    auto& waiter = store.open_newer();
    auto& fresh = store.open();
    store.tell(writer, newer.set("/k", "v"));
    store.tell(waiter, newer.wait({"/w"}));
    store.server.clear("round 1 has begun");
    CHECK(writer.closed.value_or("") == "round 1 has begun");
    CHECK(waiter.closed);
    CHECK_FALSE(fresh.closed);
    CHECK(store.ask(fresh, handshake + newer.bare(Operation::num_keys)) == i64(0));
    CHECK(store.server.usage().bytes == 0);
}
