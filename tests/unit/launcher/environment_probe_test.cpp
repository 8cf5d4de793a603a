#include "launcher/environment_probe.h"

#include <algorithm>

#include "launcher/advertised_addresses.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("a loopback endpoint is refused where the scheduler says that there are several hosts") {
    LaunchConfig config;
    config.backend = Backend::c10d;
    config.nodes_max = 4;
    config.endpoint = {"localhost", 29400};
    const auto slurm = scheduler_facts({{"SLURM_JOB_NUM_NODES", "4"}});
    CHECK(slurm.name == "Slurm");
    CHECK(slurm.host_count == 4);
    const auto refused = check_endpoint(config, slurm);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().context.find("Slurm says that there are 4 hosts (SLURM_JOB_NUM_NODES)") != std::string::npos);
    CHECK(refused.error().context.find("scontrol show hostnames") != std::string::npos);

    CHECK(check_endpoint(config, scheduler_facts({})).has_value());
    CHECK(check_endpoint(config, scheduler_facts({{"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_STEP_NUM_NODES", "1"}}))
              .has_value());
    config.is_host = true;
    CHECK(check_endpoint(config, slurm).has_value());
    config.is_host.reset();
    config.endpoint.host = "gpu01";
    CHECK(check_endpoint(config, slurm).has_value());
    config.endpoint.host = "127.0.0.1";
    config.nodes_max = 1;
    CHECK(check_endpoint(config, slurm).has_value());
}

TEST_CASE("this host is known by its name, by loopback and by the addresses of its interfaces") {
    const auto own = own_addresses();
    REQUIRE_FALSE(own.empty());
    CHECK(std::find(own.begin(), own.end(), "127.0.0.1") != own.end());
    for (const auto& address : own) CHECK(is_own_host("some-alias", {address}));
    CHECK(is_own_host("localhost", {}));
    CHECK(is_own_host(host_name(), {}));
    CHECK_FALSE(is_own_host("elsewhere", {"192.0.2.1"}));
    CHECK_FALSE(is_own_host("elsewhere", {}));
}

TEST_CASE("numeric addresses resolve to themselves, and what has no name says so") {
    CHECK(*resolve_host("192.0.2.7", 5s) == std::vector<std::string>{"192.0.2.7"});
    CHECK(*resolve_host("::1", 5s) == std::vector<std::string>{"::1"});
    const auto local = resolve_host("localhost", 5s);
    REQUIRE(local.has_value());
    CHECK(is_own_host("x", *local));
    const auto none = resolve_host("no-such-host.invalid", 30s);
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().context.find("no-such-host.invalid") != std::string::npos);
}

TEST_CASE("the advertised addresses are numeric and the best comes first") {
    LaunchConfig config;
    config.endpoint = {"localhost", 1};
    CHECK(advertised_addresses(config, {"127.0.0.1"}) == std::vector<std::string>{"127.0.0.1"});
    config.endpoint = {"::1", 1};
    CHECK(advertised_addresses(config, {"::1"}) == std::vector<std::string>{"::1"});
    config.local_address = "node7-ib0";
    CHECK(advertised_addresses(config, {}) == std::vector<std::string>{"node7-ib0"});
    config.local_address.clear();
    config.endpoint = {"elsewhere", 1};
    const auto outer = advertised_addresses(config, {"192.0.2.1"});
    REQUIRE_FALSE(outer.empty());
    if (outer.size() > 1) CHECK_FALSE(is_loopback(outer.front()));
}
