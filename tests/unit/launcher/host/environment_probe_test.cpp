#include "launcher/host/environment_probe.h"

#include <algorithm>
#include <fstream>

#include "launcher/host/advertised_addresses.h"
#include "launcher/host/endpoint_look_up.h"
#include "launcher/host/open_files.h"
#include "rendezvous/base/kernel/open_files.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

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
    CHECK(refused.error().context.find("Slurm reports 4 hosts (SLURM_JOB_NUM_NODES)") != std::string::npos);
    CHECK(refused.error().context.find("scontrol show hostnames") != std::string::npos);

    CHECK(check_endpoint(config, scheduler_facts({})).has_value());
    CHECK(check_endpoint(config, scheduler_facts({{"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_STEP_NUM_NODES", "1"}}))
              .has_value());
    config.is_host = true;
    CHECK(check_endpoint(config, slurm).has_value());
    config.is_host.reset();
    config.endpoint.host = "gpu01";
    CHECK(check_endpoint(config, slurm).has_value());
}

TEST_CASE("a loopback endpoint beside a forgotten --nnodes is refused too, and one node by intention is not") {
    const auto slurm = scheduler_facts({{"SLURM_NNODES", "2"}});
    LaunchConfig config;
    config.backend = Backend::c10d;
    config.endpoint = {"127.0.0.1", 29400};
    config.endpoint_option = "--rdzv-endpoint";
    const auto refused = check_endpoint(config, slurm);
    REQUIRE_FALSE(refused.has_value());
    for (const char* part :
         {"--rdzv-endpoint: got '127.0.0.1'", "2 hosts (SLURM_NNODES)", "write --nnodes and the name"})
        CHECK(refused.error().context.find(part) != std::string::npos);

    LaunchConfig one = config;
    one.nodes_given = true;
    CHECK(check_endpoint(one, slurm).has_value());
    one = config;
    one.endpoint.port = 0;
    CHECK(check_endpoint(one, slurm).has_value());
    one = config;
    one.endpoint_option.clear();
    CHECK(check_endpoint(one, slurm).has_value());
    one = config;
    one.standalone = true;
    CHECK(check_endpoint(one, slurm).has_value());
}

TEST_CASE("a device for each worker is asked for only with --virtual-local-rank") {
    LaunchConfig config;
    config.workers_per_node = 3;
    const Environment two{{"CUDA_VISIBLE_DEVICES", "4,5"}};
    CHECK(check_visible_devices(config, two).has_value());
    config.virtual_local_rank = true;
    const auto refused = check_visible_devices(config, two);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().context ==
          "--virtual-local-rank: CUDA_VISIBLE_DEVICES='4,5' has 2 devices, and each worker needs one, but "
          "--nproc-per-node is "
          "3; lower it, or add devices to CUDA_VISIBLE_DEVICES");
    CHECK(check_visible_devices(config, {}).has_value());
    config.workers_per_node = 2;
    CHECK(check_visible_devices(config, two).has_value());
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

TEST_CASE("a host knows its own name without a look-up, with its domain where nobody else knows it") {
    auto name = host_name();
    CHECK(is_own_name(name));
    CHECK(is_own_name("localhost"));
    CHECK_FALSE(is_own_name(name + "-2"));
    CHECK(is_own_host(name + ".cluster.example", {}));
    CHECK_FALSE(is_own_host(name + ".cluster.example", {"192.0.2.1"}));
    CHECK_FALSE(is_own_host(name + "2", {}));
    CHECK(is_own_host("some-alias", {"127.0.1.1"}));
    for (char& c : name)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    CHECK(is_own_name(name));
}

TEST_CASE("endpoints are looked up at the same time, numbers and lists of them not at all, and nobody waits in haste") {
    const std::vector<Endpoint> endpoints{{"10.0.0.1,fd00::7", 1}, {"localhost", 2}, {"no-such-host.invalid", 3}};
    const auto found = look_up_endpoints(endpoints, 60s, [] { return false; });
    REQUIRE(found.size() == 3);
    CHECK(found[0] == std::vector<std::string>{"10.0.0.1", "fd00::7"});
    REQUIRE_FALSE(found[1].empty());
    CHECK(is_own_host("x", found[1]));
    CHECK(found[2].empty());
    CHECK(look_up_endpoints({{"no-such-host.invalid", 3}}, 60s, [] { return true; }).front().empty());
}

TEST_CASE("the advertised addresses are numeric and the best comes first") {
    LaunchConfig config;
    config.nodes_max = 2;
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

TEST_CASE("a job of one node uses loopback alone; of several it may not if a name means loopback here") {
    LaunchConfig config;
    config.endpoint = {"node7", 1};
    const std::vector<std::string> loopback{"127.0.0.1"};
    CHECK(advertised_addresses(config, {"127.0.1.1", "::1"}) == loopback);
    CHECK(advertised_addresses(config, {"192.0.2.1"}) == loopback);
    config.local_address = "192.0.2.1";
    CHECK(advertised_addresses(config, {}) == loopback);
    config.local_address.clear();
    config.spares = 1;
    const auto outer = advertised_addresses(config, {});
    CHECK(advertised_addresses(config, {"127.0.1.1"}) == outer);
    config.spares = 0;
    config.nodes_max = 2;
    CHECK(advertised_addresses(config, {"127.0.1.1"}) == outer);
    if (outer == loopback) WARN("this host has no address but loopback: the cases above do not differ");
}

TEST_CASE("accelerators that nobody here can count are seen") {
    const test::ScratchFolder devices;
    CHECK(uncounted_accelerator(devices.string()).empty());
    std::ofstream(devices / "kfd");
    CHECK(uncounted_accelerator(devices.string()) == devices / "kfd");
}

TEST_CASE("the limit of open files that is advised is the first one that is enough") {
    // 42 of the node and its worker, and two connections of the worker.
    const auto limit = static_cast<std::uint32_t>(raise_open_files_limit());
    LaunchConfig config;
    config.backend = Backend::c10d;
    config.store_relay = true;
    config.is_host = false;
    config.nodes_min = limit - 43;
    CHECK(check_open_files(config).has_value());
    ++config.nodes_min;
    const auto refused = check_open_files(config);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().context.find("`ulimit -n " + std::to_string(limit + 1) + "`") != std::string::npos);
    config.is_host = true;  // each node has a connection to the daemon as well
    config.nodes_min = limit / 2 + 1;
    CHECK_FALSE(check_open_files(config).has_value());
    config.nodes_min = (limit - 43) / 2;
    CHECK(check_open_files(config).has_value());
}
