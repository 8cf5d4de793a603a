// Which address of the workers' store is found, on the store's own node and on others.
#include "agent/driver/store_reach.h"

#include <boost/asio/steady_timer.hpp>
#include <optional>

#include "tests/support/catch.h"

namespace muster::agent {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

native::Assigned assigned(std::int32_t group_rank, const std::string& address, std::uint16_t port = 1) {
    native::Assigned assignment;
    assignment.group_rank = group_rank;
    assignment.group_world_size = 2;
    assignment.store_addresses = {address};
    assignment.store_port = port;
    return assignment;
}

}  // namespace

TEST_CASE("the limit of a search that is over does not end the one that has begun since") {
    asio::io_context loop;
    tcp::acceptor store(loop, {asio::ip::address_v4::loopback(), 0});
    StoreReach reach(loop, Duration::zero());
    std::optional<StoreReach::Found> found;
    // Due before the limit, so that both are through together, and this one's handler is first.
    asio::steady_timer before(loop, std::chrono::steady_clock::now() - 1s);
    reach.start(assigned(1, "no-such-host.invalid"), {}, [](const auto&) {});
    before.async_wait([&](const auto&) {
        reach.cancel();
        reach.start(assigned(1, "127.0.0.1", store.local_endpoint().port()), {},
                    [&](auto one) { found = std::move(one); });
    });
    loop.run_for(60s);
    REQUIRE(found);
    CHECK(found->trouble.empty());
    CHECK(found->address == "127.0.0.1");
}

TEST_CASE("the store's own node has its address as it was written, at once unless that is a name") {
    asio::io_context loop;
    StoreReach reach(loop);
    std::optional<StoreReach::Found> found;
    const auto keep = [&](auto one) { found = std::move(one); };
    reach.start(assigned(0, "127.0.0.1"), {}, keep);
    REQUIRE(found);
    CHECK(found->address == "127.0.0.1");
    found.reset();
    reach.start(assigned(0, "127.0.0.1"), {.own_address = "no-such-host.invalid", .daemon_address = {}}, keep);
    CHECK_FALSE(found);
    loop.run_for(60s);
    REQUIRE(found);
    CHECK(found->address == "no-such-host.invalid");
    CHECK(found->trouble.find("--local-addr") != std::string::npos);
    found.reset();
    reach.start(assigned(0, "127.0.0.1"), {.own_address = "no-such-host.invalid", .daemon_address = {}}, keep);
    reach.hurry();
    REQUIRE(found);
    CHECK(found->address == "no-such-host.invalid");
}

}  // namespace muster::agent
