// Who is released by what: WAIT, CANCEL_WAIT, BARRIER, WAIT_GET.
#include "store_fixture.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
using namespace muster::rendezvous::test;

TEST_CASE("Every operation that brings a key into being releases its waiters") {
    const std::string creators[] = {
        newer.set("/k", "v"),
        newer.add("/k", 1),
        newer.put(Operation::append, "/k", "v"),
        newer.compare_set("/k", "", "v"),
        newer.multi_set({"/x", "/k"}, {"1", "2"}),
        newer.put(Operation::queue_push, "/k", "v"),
        newer.arrive("/k", 1),
    };
    for (const auto& creator : creators) {
        StoreFixture store;
        auto& waiter = store.open_newer();
        auto& other = store.open_newer();
        CHECK(store.ask(waiter, newer.wait({"/k"})).empty());
        store.tell(other, creator);
        CHECK(waiter.take() == stop);
        CHECK(store.server.usage().wait_count == 0);
    }
}

TEST_CASE("WAIT answers at once when all keys exist, and when there are none") {
    StoreFixture store;
    auto& peer = store.open_newer();
    CHECK(store.ask(peer, newer.wait({})) == stop);
    CHECK(store.ask(peer, newer.set("/a", "") + newer.wait({"/a", "/a"})) == stop);
}

TEST_CASE("A waiter for several keys is released by the last of them, deletions notwithstanding") {
    StoreFixture store;
    auto& waiter = store.open_newer();
    auto& other = store.open_newer();
    store.tell(waiter, newer.wait({"/u1", "/u2"}));
    store.tell(other, newer.set("/u1", "v") + newer.key(Operation::delete_key, "/u1"));
    CHECK(waiter.take().empty());
    store.tell(other, newer.set("/u2", "v"));
    CHECK(waiter.take() == stop);
    store.tell(other, newer.set("/u1", "v") + newer.set("/u2", "v"));
    CHECK(waiter.take().empty());
}

TEST_CASE("A key that is listed twice in one WAIT needs one SET") {
    StoreFixture store;
    auto& waiter = store.open_newer();
    store.tell(waiter, newer.wait({"/d", "/d"}));
    store.tell(store.open_newer(), newer.set("/d", "v"));
    CHECK(waiter.take() == stop);
}

TEST_CASE("QUEUE_PUSH releases one waiter, the first, and each later push one more") {
    StoreFixture store;
    auto& first = store.open_newer();
    auto& second = store.open_newer();
    auto& pusher = store.open_newer();
    store.tell(first, newer.wait({"/q"}));
    store.tell(second, newer.wait({"/q"}));
    store.tell(pusher, newer.put(Operation::queue_push, "/q", "1"));
    CHECK(first.take() == stop);
    CHECK(second.take().empty());
    store.tell(pusher, newer.put(Operation::queue_push, "/q", "2"));
    CHECK(first.take().empty());
    CHECK(second.take() == stop);
}

TEST_CASE("CANCEL_WAIT is always answered and disarms the wait") {
    StoreFixture store;
    auto& waiter = store.open_newer();
    CHECK(store.ask(waiter, newer.bare(Operation::cancel_wait)) == canceled);
    CHECK(store.ask(waiter, newer.wait({"/v"}) + newer.bare(Operation::cancel_wait)) == canceled);
    store.tell(store.open_newer(), newer.set("/v", "v"));
    CHECK(waiter.take().empty());
    CHECK(store.server.usage().wait_count == 0);
}

TEST_CASE("Other requests are answered while a wait is pending, and one's own SET releases it") {
    StoreFixture store;
    auto& peer = store.open_newer();
    CHECK(store.ask(peer, newer.wait({"/w"}) + newer.bare(Operation::num_keys)) == i64(0));
    CHECK(store.ask(peer, newer.set("/w", "v") + newer.bare(Operation::num_keys)) == stop + i64(1));
}

TEST_CASE("A second WAIT takes the place of the first") {
    StoreFixture store;
    auto& peer = store.open_newer();
    store.tell(peer, newer.wait({"/a"}) + newer.wait({"/b"}));
    auto& other = store.open_newer();
    store.tell(other, newer.set("/a", ""));
    CHECK(peer.take().empty());
    store.tell(other, newer.set("/b", ""));
    CHECK(peer.take() == stop);
}

TEST_CASE("A barrier releases everybody at the last arrival, and later arrivals at once") {
    StoreFixture store;
    auto& a = store.open_newer();
    auto& b = store.open_newer();
    auto& c = store.open_newer();
    CHECK(store.ask(a, newer.arrive("/b", 3)).empty());
    CHECK(store.ask(b, newer.arrive("/b", 3)).empty());
    CHECK(store.ask(c, newer.arrive("/b", 3)) == stop);
    CHECK(a.take() == stop);
    CHECK(b.take() == stop);
    CHECK(store.ask(c, newer.arrive("/b", 3)) == stop);
    CHECK(store.ask(c, newer.get("/b")) == blob("4"));
}

TEST_CASE("A cancelled barrier keeps its count, and arrivals before the last release no plain WAIT") {
    StoreFixture store;
    auto& a = store.open_newer();
    CHECK(store.ask(a, newer.arrive("/b", 2) + newer.bare(Operation::cancel_wait)) == canceled);
    CHECK(store.ask(a, newer.get("/b")) == blob("1"));
    auto& waiter = store.open_newer();
    store.tell(waiter, newer.wait({"/c"}));
    store.tell(a, newer.arrive("/c", 2));
    CHECK(waiter.take().empty());
    store.tell(store.open_newer(), newer.arrive("/c", 2));
    CHECK(waiter.take() == stop);
    CHECK(a.take() == stop);
}

TEST_CASE("WAIT_GET answers as WAIT and MULTI_GET would, at once or when the keys are there") {
    StoreFixture store;
    auto& peer = store.open_newer();
    auto& other = store.open_newer();
    store.tell(other, newer.set("/a", "1"));
    CHECK(store.ask(peer, newer.wait_get({"/a"})) == stop + blob("1"));
    CHECK(store.ask(peer, newer.wait_get({"/a", "/b"})).empty());
    store.tell(other, newer.set("/b", "2"));
    CHECK(peer.take() == stop + blob("1") + blob("2"));
    CHECK(store.ask(peer, newer.wait_get({"/c"}) + newer.bare(Operation::cancel_wait)) == canceled);
    CHECK(store.ask(peer, newer.wait_get({"/c"}) + newer.set("/c", "3")) == stop + blob("3"));
}

TEST_CASE("A connection that ends leaves no waits behind, whatever it waited for") {
    StoreFixture store;
    auto& a = store.open_newer();
    auto& b = store.open_newer();
    auto& c = store.open_newer();
    for (auto* peer : {&a, &b, &c}) store.tell(*peer, newer.wait({"/1", "/2", "/3"}));
    CHECK(store.server.usage().wait_count == 9);
    store.end(b);
    CHECK(store.server.usage().wait_count == 6);
    auto& setter = store.open_newer();
    store.tell(setter, newer.multi_set({"/1", "/2", "/3"}, {"", "", ""}));
    CHECK(a.take() == stop);
    CHECK(c.take() == stop);
    CHECK(b.take().empty());
    for (const auto* key : {"/1", "/2", "/3"}) store.tell(setter, newer.key(Operation::delete_key, key));
    store.end(a);
    store.end(c);
    CHECK(store.server.usage().bytes == 0);
}
