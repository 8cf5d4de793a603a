// Dialogues of the newer family (PyTorch 2.1 and later), operation by operation.
#include "rendezvous/wire/c10d/limits.h"
#include "store_fixture.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
using namespace muster::rendezvous::test;

TEST_CASE("The byte examples of a real PyTorch client are answered byte for byte") {
    StoreFixture store;
    auto& peer = store.open_newer();
    const auto hex = [](std::string_view text) {
        std::string out;
        for (std::size_t i = 0; i + 1 < text.size(); i += 2)
            out.push_back(static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
        return out;
    };
    const auto says = [&](std::string_view request, std::string_view reply) {
        CHECK(store.ask(peer, hex(request)) == hex(reply));
    };
    says("0d2a000000", "2a000000");                                                // PING
    says("040500000000000000696e69742f0100000000000000", "0100000000000000");      // ADD init/ 1
    says("0103000000000000002f6b31050000000000000068656c6c6f", "");                // SET k1 hello
    says("06010000000000000003000000000000002f6b31", "00");                        // WAIT k1
    says("0303000000000000002f6b31", "050000000000000068656c6c6f");                // GET k1
    says("0402000000000000002f6e0500000000000000", "0500000000000000");            // ADD n 5
    says("0402000000000000002f6efeffffffffffffff", "0300000000000000");            // ADD n -2
    says("05020000000000000003000000000000002f6b3103000000000000002f7a7a", "01");  // CHECK k1 zz
    says(
        "0204000000000000002f63617300000000000000000200000000000000763"
        "1",
        "02000000000000007631");                               // CAS "" -> v1
    says("1204000000000000002f6261720100000000000000", "00");  // BARRIER bar 1
    says("0c", "01");                                          // CANCEL_WAIT
    CHECK_FALSE(peer.closed);
}

TEST_CASE("Keys that only torchrun's agents use are told of, with the job and who uses them") {
    std::vector<std::string> seen;
    StoreConfig config;
    config.on_torchrun = [&](const std::string& job, const std::string& source) { seen.push_back(job + " " + source); };
    StoreFixture store(config);
    auto& peer = store.open_newer("10.0.0.7");
    for (const char* key :
         {"/torch.rendezvous.bert", "/torch.rendezvous.bert.0/MASTER_ADDR", "/none/torchelastic/role_info/1",
          "/torch.rendezvous.bert.0/torchelastic/role_info/1", "/default_pg/0//0", "torchelastic"})
        store.ask(peer, newer.set(key, "v"));
    CHECK(seen == std::vector<std::string>{"bert 10.0.0.7", "none 10.0.0.7"});
}

TEST_CASE("SET then GET on one connection reads what was written, and an empty value exists") {
    StoreFixture store;
    auto& peer = store.open_newer();
    CHECK(store.ask(peer, newer.set("/a", "x") + newer.get("/a")) == blob("x"));
    CHECK(store.ask(peer, newer.set("/a", "longer than before") + newer.get("/a")) == blob("longer than before"));
    CHECK(store.ask(peer, newer.set("/e", "") + newer.check({"/e"}) + newer.get("/e")) == stop + blob(""));
}

TEST_CASE("GET of a missing key is answered with an empty value, as libuv's server does") {
    StoreFixture store;
    auto& peer = store.open_newer();
    CHECK(store.ask(peer, newer.get("/none")) == blob(""));
    CHECK(store.ask(peer, newer.keys(Operation::multi_get, {"/none", "/none"})) == blob("") + blob(""));
}

TEST_CASE("COMPARE_SET answers with the value afterwards, or with what was expected when the key is missing") {
    StoreFixture store;
    auto& peer = store.open_newer();
    CHECK(store.ask(peer, newer.compare_set("/c", "e", "n")) == blob("e"));
    CHECK(store.ask(peer, newer.check({"/c"})) == canceled);
    CHECK(store.ask(peer, newer.compare_set("/c", "", "n")) == blob("n"));
    CHECK(store.ask(peer, newer.compare_set("/c", "x", "y")) == blob("n"));
    CHECK(store.ask(peer, newer.compare_set("/c", "n", "")) == blob(""));
    CHECK(store.ask(peer, newer.compare_set("/c", "", "again")) == blob("again"));
}

TEST_CASE("ADD counts in decimal text, wraps around, and reads numbers as C does") {
    StoreFixture store;
    auto& peer = store.open_newer();
    CHECK(store.ask(peer, newer.add("/n", 5) + newer.add("/n", -7) + newer.get("/n")) == i64(5) + i64(-2) + blob("-2"));
    CHECK(store.ask(peer, newer.set("/y", " 12abc") + newer.add("/y", 1)) == i64(13));
    CHECK(store.ask(peer, newer.set("/p", "\t+3") + newer.add("/p", 1)) == i64(4));
    CHECK(store.ask(peer, newer.add("/w", INT64_MAX) + newer.add("/w", 1)) == i64(INT64_MAX) + i64(INT64_MIN));
    for (const auto* text : {"", "abc", "+-3", "-", "99999999999999999999"}) {
        auto& other = store.open_newer();
        CHECK(store.ask(other, newer.set("/bad", text) + newer.add("/bad", 1)).empty());
        CHECK(other.closed.value_or("") ==
              "ADD: the value of " + std::to_string(std::string(text).size()) + " bytes is not a number");
    }
}

TEST_CASE("CHECK is ready when every key exists, a queue counts, and no keys at all are ready") {
    StoreFixture store;
    auto& peer = store.open_newer();
    store.tell(peer, newer.set("/a", "1") + newer.put(Operation::queue_push, "/q", "1"));
    CHECK(store.ask(peer, newer.check({})) == stop);
    CHECK(store.ask(peer, newer.check({"/a", "/q"})) == stop);
    CHECK(store.ask(peer, newer.check({"/a", "/b"})) == canceled);
    CHECK(store.ask(peer, newer.check({c10d::probe_key})) == stop);
}

TEST_CASE("APPEND makes and extends a value, and never changes one that a reply still holds") {
    StoreFixture store;
    auto& peer = store.open_newer();
    const auto append = [&](std::string_view bytes) { return newer.put(Operation::append, "/a", bytes); };
    CHECK(store.ask(peer, append("12") + append("3") + newer.get("/a")) == blob("123"));

    struct Holder final : StorePeer {
        void send(std::string_view) override {}
        void send(SharedValue value) override { held = std::move(value); }
        void close(std::string) override {}
        SharedValue held;
    } holder;
    auto* connection = store.server.accept(holder, "10.0.0.2", store.now);
    const std::string large(10'000, 'x');
    store.tell(peer, newer.set("/l", large));
    store.server.receive(*connection, handshake + newer.get("/l"), store.now);
    store.tell(peer, newer.put(Operation::append, "/l", "more"));
    REQUIRE(holder.held);
    CHECK(*holder.held == large);
    store.server.receive(*connection, newer.get("/l"), store.now);
    REQUIRE(holder.held->size() == large.size() + 4);
    store.tell(peer, newer.set("/l", std::string(large.size() + 4, 'y')));
    CHECK(*holder.held == large + "more");
}

TEST_CASE("DELETE_KEY says whether there was one, and takes no queue away") {
    StoreFixture store;
    auto& peer = store.open_newer();
    const auto erase = newer.key(Operation::delete_key, "/d");
    CHECK(store.ask(peer, erase) == i64(0));
    store.tell(peer, newer.put(Operation::queue_push, "/d", "q"));
    CHECK(store.ask(peer, erase) == i64(0));
    CHECK(store.ask(peer, newer.set("/d", "v") + erase) == i64(1));
    CHECK(store.ask(peer, newer.key(Operation::queue_len, "/d")) == i64(1));
}

TEST_CASE("GETNUMKEYS and LIST_KEYS count keys, the worker counter too, and no queues") {
    StoreFixture store;
    auto& peer = store.open_newer();
    CHECK(store.ask(peer, newer.bare(Operation::list_keys)) == i64(0));
    store.tell(peer, newer.add("init/", 1) + newer.set("/a", "") + newer.put(Operation::queue_push, "/q", "x"));
    store.tell(store.open_newer(), newer.wait({"/waited-for"}));
    peer.take();
    CHECK(store.ask(peer, newer.bare(Operation::num_keys)) == i64(2));
    CHECK(store.ask(peer, newer.bare(Operation::list_keys)) == i64(2) + blob("init/") + blob("/a"));
}

TEST_CASE("MULTI_SET stores its pairs in order and MULTI_GET answers in the order asked") {
    StoreFixture store;
    auto& peer = store.open_newer();
    store.tell(peer, newer.multi_set({"/a", "/b", "/a"}, {"1", "2", "3"}));
    CHECK(store.ask(peer, newer.keys(Operation::multi_get, {"/b", "/a"})) == blob("2") + blob("3"));
}

TEST_CASE("A queue gives its values back first in, first out, apart from the key of the same name") {
    StoreFixture store;
    auto& peer = store.open_newer();
    const auto push = [](std::string_view v) { return newer.put(Operation::queue_push, "/q", v); };
    const auto pop = newer.key(Operation::queue_pop, "/q");
    CHECK(store.ask(peer, pop) == i64(0));
    CHECK(store.ask(peer, push("1") + push("2") + newer.set("/q", "v") + pop) == i64(2) + blob("1"));
    CHECK(store.ask(peer, pop + pop + newer.get("/q")) == i64(1) + blob("2") + i64(0) + blob("v"));
    CHECK(store.ask(peer, newer.key(Operation::queue_len, "/q")) == i64(0));
}

TEST_CASE("Large values are shared with the reply instead of copied") {
    StoreFixture store;
    auto& peer = store.open_newer();
    const std::string large(100'000, 'v');
    CHECK(store.ask(peer, newer.set("/l", large) + newer.get("/l")) == blob(large));
    CHECK(peer.shared_count == 1);
}

TEST_CASE("The replies to one read leave in one piece") {
    StoreFixture store;
    auto& peer = store.open_newer();
    store.tell(peer, newer.set("/a", "1") + newer.get("/a") + newer.add("/n", 1) + newer.check({"/a"}));
    CHECK(peer.send_count == 1);
}

TEST_CASE("What breaks the protocol closes that connection, with the reason, after the earlier replies") {
    const std::string too_long(c10d::key_bytes_max + 1, 'k');
    const std::pair<std::string, std::string> cases[] = {
        {handshake, "VALIDATE: sent a second time"},
        {"\x63", "unknown operation 99"},
        {newer.get(too_long), "GET: a key of 8193, at most 8192 are accepted"},
        {"\x01" + blob("/k") + u64(c10d::value_bytes_max + 1), "SET: a value of 8388609, at most 8388608 are accepted"},
        {"\x06" + u64(131'073), "WAIT: a count of 131073, at most 131072 are accepted"},
        {"\x0b" + u64(UINT64_MAX), "MULTI_SET: a count of 18446744073709551615, at most 131072 are accepted"},
    };
    for (const auto& [bytes, why] : cases) {
        StoreFixture store;
        auto& peer = store.open_newer();
        CHECK(store.ask(peer, newer.bare(Operation::num_keys) + bytes) == i64(0));
        CHECK(peer.closed.value_or("") == why);
        CHECK(peer.flow == StoreFlow::closed);
        CHECK(store.ask(peer, newer.bare(Operation::num_keys)).empty());
        store.end(peer);
        CHECK(store.server.usage().connection_count == 0);
    }
}
