// The client core as dialogues: what it sends, what it makes of each answer, and where it ends when an answer fails.
#include "rendezvous/wire/c10d/store_client_core.h"

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/store/store_fixture.h"

using namespace muster;
using namespace muster::rendezvous;
using namespace muster::rendezvous::test;
using Progress = StoreClientCore::Progress;
using Greeting = StoreClientCore::Greeting;

namespace {

c10d::Request with_keys(Operation operation, std::initializer_list<std::string_view> keys) {
    c10d::Request request;
    request.operation = operation;
    request.keys = keys;
    return request;
}

c10d::Request with_key(Operation operation, std::string_view key) {
    c10d::Request request;
    request.operation = operation;
    request.key = key;
    return request;
}

const std::string nonce_7("\x07\0\0\0", 4);
const std::string cancel("\x0c");

StoreClientCore opened(bool ours) {
    StoreClientCore core;
    core.open(Greeting::with_ping, 7);
    REQUIRE(core.receive(nonce_7 + (ours ? stop : canceled)) == Progress::done);
    return core;
}

}  // namespace

TEST_CASE("The first write carries VALIDATE, PING and the probe that only our server says yes to") {
    StoreClientCore core;
    CHECK(core.open(Greeting::with_ping, 7) == handshake + "\x0d" + nonce_7 + newer.check({"muster/wait_get"}));
    CHECK(core.receive(nonce_7) == Progress::more);
    CHECK(core.receive(stop) == Progress::done);
    CHECK(core.server_is_ours());

    StoreClientCore older_server;
    CHECK(older_server.open(Greeting::without_ping, 7) == handshake + newer.check({"muster/wait_get"}));
    CHECK(older_server.receive(canceled) == Progress::done);
    CHECK_FALSE(older_server.server_is_ours());
}

TEST_CASE("A server that answers PING with something else is no store") {
    StoreClientCore core;
    core.open(Greeting::with_ping, 7);
    CHECK(core.receive("HTTP/1.1 400") == Progress::failed);
    CHECK(core.error().code == Errc::bad_frame);
}

TEST_CASE("A reply is taken in any chunks, and requests without a reply are done at once") {
    for (const std::size_t chunk : {1u, 3u, 100u}) {
        auto core = opened(true);
        const auto reply = stop + blob("value") + blob(std::string(300, 'x'));
        CHECK(core.request(with_keys(Operation::wait_get, {"/a", "/b"})) == newer.wait_get({"/a", "/b"}));
        for (std::size_t at = 0; at < reply.size(); at += chunk) {
            CHECK(core.progress() == Progress::more);
            core.receive(std::string_view(reply).substr(at, chunk));
        }
        REQUIRE(core.progress() == Progress::done);
        CHECK(core.reply().blobs == std::vector<std::string>{"value", std::string(300, 'x')});
        core.request(with_key(Operation::set, "/k"));
        CHECK(core.progress() == Progress::done);
    }
}

TEST_CASE("A wait that times out is called off, also when its answer crosses the cancellation") {
    auto core = opened(true);
    core.request(with_keys(Operation::wait, {"/a"}));
    CHECK(core.timed_out() == cancel);
    CHECK(core.receive(canceled) == Progress::expired);

    core.request(with_keys(Operation::wait, {"/a"}));
    CHECK(core.timed_out() == cancel);
    CHECK(core.receive(stop) == Progress::more);
    CHECK(core.receive(canceled) == Progress::expired);

    core.request(with_keys(Operation::wait_get, {"/a"}));
    CHECK(core.timed_out() == cancel);
    CHECK(core.receive(stop + blob(std::string("\1\0\0", 3))) == Progress::more);
    CHECK(core.receive(canceled) == Progress::expired);

    core.request(with_key(Operation::barrier, "/b"));
    CHECK(core.timed_out() == cancel);
    CHECK(core.receive(stop + canceled) == Progress::expired);

    core.request(with_key(Operation::num_keys, ""));
    CHECK(core.receive(i64(3)) == Progress::done);
    CHECK(core.reply().number == 3);
}

TEST_CASE("A server that acknowledges the cancellation late loses nothing") {
    auto core = opened(true);
    for (const auto& late : {canceled, stop + blob("v") + canceled}) {
        core.request(with_keys(Operation::wait_get, {"/a"}));
        CHECK(core.timed_out() == cancel);
        for (const char byte : late) {
            CHECK(core.is_cancelling());
            CHECK(core.timed_out().empty());
            CHECK(core.progress() == Progress::more);
            core.receive({&byte, 1});
        }
        CHECK(core.progress() == Progress::expired);
        CHECK_FALSE(core.is_cancelling());
    }
    core.request(with_key(Operation::num_keys, ""));
    CHECK(core.receive(i64(3)) == Progress::done);
}

TEST_CASE("A server that does not answer a plain request is given up") {
    auto plain = opened(false);
    plain.request(with_key(Operation::get, "/a"));
    CHECK(plain.timed_out().empty());
    CHECK(plain.progress() == Progress::failed);
}

TEST_CASE("Bytes that answer nothing, and lengths beyond all measure, fail the connection") {
    auto core = opened(true);
    core.request(with_key(Operation::num_keys, ""));
    CHECK(core.receive(i64(3) + "x") == Progress::failed);
    CHECK(core.error().code == Errc::bad_frame);

    auto other = opened(true);
    other.request(with_key(Operation::get, "/a"));
    CHECK(other.receive(u64(std::uint64_t{1} << 40)) == Progress::failed);
    CHECK(other.error().code == Errc::limit_exceeded);
}

TEST_CASE(
    "A connection lost after any step of a session fails that call with the reason, and later data changes nothing") {
    struct Step {
        c10d::Request request;
        std::string reply;
    };
    const Step steps[] = {
        {with_keys(Operation::check, {"/a"}), canceled},
        {with_key(Operation::add, "/n"), i64(1)},
        {with_keys(Operation::wait_get, {"/a"}), stop + blob("v")},
        {with_key(Operation::queue_pop, "/q"), i64(1) + blob("head")},
        {with_key(Operation::list_keys, ""), i64(2) + blob("/a") + blob("/b")},
    };
    for (std::size_t lost_after = 0; lost_after < std::size(steps); ++lost_after) {
        const auto& last = steps[lost_after];
        for (std::size_t received = 0; received < last.reply.size(); ++received) {
            auto core = opened(true);
            for (std::size_t i = 0; i < lost_after; ++i) {
                core.request(steps[i].request);
                REQUIRE(core.receive(steps[i].reply) == Progress::done);
            }
            core.request(last.request);
            CHECK(core.receive(std::string_view(last.reply).substr(0, received)) == Progress::more);
            core.closed("reset");
            CHECK(core.progress() == Progress::failed);
            CHECK(core.error().code == Errc::peer_closed);
            CHECK(core.receive(last.reply) == Progress::failed);
        }
    }
}

TEST_CASE("Client core and server core understand each other without a socket") {
    StoreFixture store;
    auto& peer = store.open();
    StoreClientCore core;
    CHECK(core.receive(store.ask(peer, core.open(Greeting::with_ping, 42))) == Progress::done);
    CHECK(core.server_is_ours());
    auto request = with_key(Operation::set, "/k");
    request.value = "v";
    CHECK(store.ask(peer, core.request(request)).empty());
    CHECK(core.receive(store.ask(peer, core.request(with_keys(Operation::wait_get, {"/k"})))) == Progress::done);
    CHECK(core.reply().blobs == std::vector<std::string>{"v"});
}
