// Names and numbers to addresses, with a deadline and on a loop.
#include "rendezvous/base/sockets/name_lookup.h"

#include <optional>

#include "rendezvous/connect/resolver.h"
#include "tests/support/catch.h"

namespace muster::rendezvous {
namespace {

/// A name that nobody has, for look-ups that take a while.
const Endpoint nobody{"no-such-host.invalid", 1};

}  // namespace

TEST_CASE("a numeric address is its own answer, whatever the deadline") {
    const auto found = look_up({"fd00::7", 29400}, Instant::min());
    REQUIRE(found.has_value());
    REQUIRE(found->size() == 1);
    CHECK(found->front().numeric() == "fd00::7");
    CHECK(found->front().port() == 29400);
}

TEST_CASE("several numeric addresses stand for one host, and need no look-up; a name among them does") {
    const auto found = numeric_addresses({"10.0.0.1,fd00::7", 29400});
    REQUIRE(found.size() == 2);
    CHECK(found[0].numeric() == "10.0.0.1");
    CHECK(found[1].numeric() == "fd00::7");
    CHECK(found[1].port() == 29400);
    CHECK(numeric_addresses({"10.0.0.1,gpu01", 1}).empty());
    CHECK(look_up({"10.0.0.1,fd00::7", 1}, Instant::min())->size() == 2);
}

TEST_CASE("a name is looked up with its port, and a name that nobody has is named in the error") {
    const auto found = look_up({"localhost", 7}, std::chrono::steady_clock::now() + 60s);
    REQUIRE(found.has_value());
    for (const auto& address : *found) CHECK(address.port() == 7);
    const auto none = look_up(nobody, std::chrono::steady_clock::now() + 60s);
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().context.find(nobody.host) != std::string::npos);
}

TEST_CASE("the resolver answers on its loop: numbers, names, and more names than it looks up at a time") {
    boost::asio::io_context io;
    Resolver resolver(io);
    int answered = 0;
    resolver.resolve({"127.0.0.1", 9}, [&](auto found) {
        REQUIRE(found.has_value());
        CHECK(found->front().port() == 9);
        ++answered;
    });
    CHECK(answered == 0);
    for (int i = 0; i < 10; ++i) {
        resolver.resolve({"localhost", 9}, [&](auto found) {
            CHECK(found.has_value());
            ++answered;
        });
    }
    const auto work = boost::asio::make_work_guard(io);
    while (answered < 11 && io.run_one_for(60s) > 0) {
    }
    CHECK(answered == 11);
}

TEST_CASE("what a handler owns ends with the resolver, on this thread, and not with a look-up that goes on") {
    boost::asio::io_context io;
    std::optional<Resolver> resolver(io);
    auto owned = std::make_shared<int>(1);
    for (int i = 0; i < 10; ++i) resolver->resolve(nobody, [owned](const auto&) { FAIL("called"); });
    CHECK(owned.use_count() == 11);
    resolver.reset();
    CHECK(owned.use_count() == 1);
    io.run();
}

}  // namespace muster::rendezvous
