// The asynchronous client against a real store over loopback.
#include "rendezvous/store_client/async_store_client.h"

#include "rendezvous/servers/round_store.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

struct Fixture {
    Fixture() : store(RoundStore::open(loop, {}).value()) { loop.start_thread(); }
    ~Fixture() { store.reset(); }
    [[nodiscard]] std::unique_ptr<AsyncStoreClient> client() {
        return std::make_unique<AsyncStoreClient>(io, Endpoint{"localhost", store->port()},
                                                  StoreClientOptions{.connect_timeout = 60s, .timeout = 60s});
    }
    /// Runs the loop until `done`.
    void run_until(const bool& done) {
        while (!done) REQUIRE(io.run_one_for(60s) > 0);
    }

    EventLoop loop;
    std::unique_ptr<RoundStore> store;
    boost::asio::io_context io;
};

}  // namespace

TEST_CASE("Calls made before the connection stands are answered in their order") {
    Fixture fixture;
    const auto client = fixture.client();
    std::vector<std::string> heard;
    bool done = false;
    client->set("k", "v", [&](Result<void> result) { heard.push_back(result ? "set" : "failed"); });
    client->get("k", [&](Result<std::string> value) { heard.push_back("get " + value.value()); });
    client->add("n", 5, [&](Result<std::int64_t> sum) { heard.push_back("add " + std::to_string(sum.value())); });
    client->compare_set("k", "v", "w", [&](Result<std::string> value) { heard.push_back("cas " + value.value()); });
    client->check({"k", "none"}, [&](Result<bool> all) { heard.push_back(all.value() ? "all" : "not all"); });
    client->queue_push("q", "x", [&](Result<void> result) { heard.push_back(result ? "push" : "failed"); });
    client->queue_pop("q", [&](Result<std::optional<std::string>> head) { heard.push_back("pop " + *head.value()); });
    client->delete_key("k", [&](Result<bool> was) { heard.push_back(was.value() ? "deleted" : "none"); });
    client->num_keys([&](Result<std::int64_t> count) {
        heard.push_back(std::to_string(count.value()));
        done = true;
    });
    CHECK(heard.empty());
    fixture.run_until(done);
    CHECK(client->server_is_ours());
    CHECK(heard ==
          std::vector<std::string>{"set", "get v", "add 5", "cas w", "not all", "push", "pop x", "deleted", "1"});
}

TEST_CASE("A get that times out says so, and the calls behind it are served") {
    Fixture fixture;
    const auto client = fixture.client();
    std::optional<Error> failure;
    bool done = false;
    client->get(
        "never", [&](Result<std::string> value) { failure = value.error(); }, 50ms);
    client->add("n", 1, [&](Result<std::int64_t> sum) { done = sum.value() == 1; });
    fixture.run_until(done);
    REQUIRE(failure);
    CHECK(failure->code == Errc::timed_out);
}

TEST_CASE("One client's set releases the other's get") {
    Fixture fixture;
    const auto waiting = fixture.client();
    const auto setting = fixture.client();
    bool done = false;
    waiting->get("k", [&](Result<std::string> value) { done = value.value() == "at last"; });
    setting->set("k", "at last", [](Result<void>) {});
    fixture.run_until(done);
}

TEST_CASE("When the store goes away, the waiting call and every later one fail") {
    Fixture fixture;
    const auto client = fixture.client();
    bool connected = false;
    client->when_connected([&](Result<void> result) { connected = result.has_value(); });
    fixture.run_until(connected);
    std::vector<Errc> codes;
    bool done = false;
    client->get("k", [&](Result<std::string> value) { codes.push_back(value.error().code); });
    client->num_keys([&](Result<std::int64_t> count) {
        codes.push_back(count.error().code);
        done = true;
    });
    fixture.store.reset();
    fixture.run_until(done);
    CHECK(codes == std::vector<Errc>{Errc::peer_closed, Errc::peer_closed});
}

TEST_CASE("A client that is destroyed calls no handler any more, and its coroutine ends") {
    Fixture fixture;
    bool called = false;
    for (const bool connect_first : {false, true}) {
        auto client = fixture.client();
        bool connected = !connect_first;
        client->when_connected([&](Result<void>) { connected = true; });
        fixture.run_until(connected);
        client->get("k", [&](Result<std::string>) { called = true; });
        client.reset();
        fixture.io.run_for(60s);  // ends at once: nothing is outstanding
        CHECK(fixture.io.stopped());
        fixture.io.restart();
    }
    CHECK_FALSE(called);
}

TEST_CASE("Nobody there: the calls hear what was tried, at the deadline") {
    boost::asio::io_context io;
    AsyncStoreClient client(io, {"127.0.0.1", 1}, {.connect_timeout = 6s});
    std::optional<Error> failure;
    client.get("k", [&](Result<std::string> value) { failure = value.error(); });
    while (!failure) REQUIRE(io.run_one_for(60s) > 0);
    CHECK(failure->code == Errc::unreachable);
    CHECK(failure->context.find("127.0.0.1: Connection refused") != std::string::npos);
}
