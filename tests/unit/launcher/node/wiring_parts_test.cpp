// The parts of the wiring that can be looked at one by one: what the agent is told, and the last words of a dead one.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "launcher/node/agent_config.h"
#include "launcher/node/death_notice.h"
#include "launcher/node/node_versions.h"
#include "launcher/node/torch_package.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/wire/native/codec.h"
#include "rendezvous/wire/native/limits.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::launcher;

namespace {

/// A listener on loopback that takes one connection and keeps what it is told.
class OneListener {
  public:
    OneListener() {
        fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof name;
        REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&name), size) == 0);
        REQUIRE(::listen(fd_, 1) == 0);
        REQUIRE(::getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size) == 0);
        port_ = ntohs(name.sin_port);
    }
    ~OneListener() { ::close(fd_); }
    OneListener(const OneListener&) = delete;
    OneListener& operator=(const OneListener&) = delete;

    std::string take_all() const { return hear_out(::accept(fd_, nullptr, nullptr)); }
    /// Says `words`, and no more, to the next one that connects, and hears it out.
    std::string answer(std::string_view words) {
        const int peer = ::accept(fd_, nullptr, nullptr);
        ::send(peer, words.data(), words.size(), MSG_NOSIGNAL);
        ::shutdown(peer, SHUT_WR);
        auto bytes = hear_out(peer);
        ++answered_count_;
        return bytes;
    }
    [[nodiscard]] int answered_count() const { return answered_count_; }
    /// Whoever connects from now on is refused.
    void shut() { ::close(std::exchange(fd_, -1)); }
    [[nodiscard]] std::uint16_t port() const { return port_; }

  private:
    static std::string hear_out(int peer) {
        std::string bytes;
        char piece[256];
        for (ssize_t size = 0; (size = ::recv(peer, piece, sizeof piece, 0)) > 0;)
            bytes.append(piece, static_cast<std::size_t>(size));
        ::close(peer);
        return bytes;
    }
    std::atomic<int> answered_count_{0};
    int fd_ = -1;
    std::uint16_t port_ = 0;
};

DeathNoticePlan plan_for(std::vector<Endpoint> daemons) {
    native::Hello hello;
    hello.job = "j";
    hello.node = {.host = "gpu07", .pid = 42, .incarnation = 99};
    return {.daemons = std::move(daemons), .hello = hello, .why = "its agent died"};
}

}  // namespace

TEST_CASE("the last words reach the first address that answers: Hello and AgentDied") {
    OneListener listener;
    std::string bytes;
    std::thread daemon([&] { bytes = listener.take_all(); });
    deliver_death_notice(
        write_death_notice(plan_for({{"::1", listener.port()}, {"not-an-address", 1}, {"127.0.0.1", listener.port()}})),
        60s);
    daemon.join();
    native::FrameReader reader(native::Sender::agent);
    reader.append(bytes);
    const auto first = reader.next();
    const auto second = reader.next();
    REQUIRE((first.has_value() && first->has_value() && second.has_value() && second->has_value()));
    CHECK(std::get<native::Hello>(**first).node.incarnation == 99);
    CHECK(std::get<native::AgentDied>(**second).why == "its agent died");
    const auto rest = reader.next();
    CHECK((rest.has_value() && !rest->has_value()));
}

TEST_CASE("the last words of an agent with a key begin with the question for a proof") {
    OneListener listener;
    std::string bytes;
    std::thread daemon([&] { bytes = listener.answer({}); });
    auto plan = plan_for({{"127.0.0.1", listener.port()}});
    plan.keys = {std::string(31, 'k') + '\n', std::string(32, 'o')};
    deliver_death_notice(write_death_notice(plan), 60s);
    daemon.join();
    native::FrameReader reader(native::Sender::agent);
    reader.append(bytes);
    const auto first = reader.next();
    REQUIRE((first.has_value() && first->has_value()));
    CHECK_FALSE(std::get<native::Hello>(**first).challenge.empty());
    const auto rest = reader.next();
    CHECK((rest.has_value() && !rest->has_value()));  // not before the daemon has proved itself
}

TEST_CASE("a daemon that does not answer, or a broken death notice, holds the guardian up no longer than its limit") {
    OneListener silent;  // accepts in the kernel, never reads, never closes
    const auto started = std::chrono::steady_clock::now();
    deliver_death_notice(write_death_notice(plan_for({{"127.0.0.1", silent.port()}})), 200ms);
    deliver_death_notice("", 1s);
    deliver_death_notice("no line end", 1s);
    deliver_death_notice("127.0.0.1:port\n", 1s);
    deliver_death_notice(std::string("127.0.0.1:port\n\0x", 17), 1s);
    deliver_death_notice("127.0.0.1:1\n\x01\x20 no whole key", 1s);
    deliver_death_notice(std::string("127.0.0.1:99999 127.0.0.1\n\0x", 28), 1s);
    CHECK(std::chrono::steady_clock::now() - started < 60s);
}

TEST_CASE("the last words go on to the next daemon until one of them leads") {
    OneListener standby;
    OneListener leader;
    std::string refusal;
    native::append_frame(refusal, native::NotLeader{"elsewhere:1"});
    std::string bytes;
    std::thread daemons([&] {
        for (int times = 0; times < 2; ++times) standby.answer(refusal);
        bytes = leader.take_all();
    });
    std::thread guardian([&] {
        deliver_death_notice(write_death_notice(plan_for({{"127.0.0.1", standby.port()}, {"127.0.0.1", 1}})), 60s);
        deliver_death_notice(write_death_notice(plan_for(
                                 {{"127.0.0.1", 1}, {"127.0.0.1", leader.port()}, {"127.0.0.1", standby.port()}})),
                             60s);
    });
    // The standby answers twice, which only somebody who asks again can have brought about; then nobody is there.
    while (standby.answered_count() < 2) std::this_thread::yield();
    standby.shut();
    guardian.join();
    daemons.join();
    CHECK_FALSE(bytes.empty());
}

TEST_CASE("the agent and its client are told what the options said") {
    LaunchConfig config;
    config.backend = Backend::fixed;
    config.nodes_min = config.nodes_max = 3;
    config.node_rank = 2;
    config.workers_per_node = 4;
    config.endpoint = {"gpu01", 29511};
    config.job = "j7";
    config.script = "/x/train.py";
    config.restarts_max = 5;
    config.lease = 2s;
    config.redirects.by_local_rank = {{1, StreamMask::err}};
    config.tee.all = StreamMask::out;
    const NodeFacts node{.identity = {.host = "gpu03", .pid = 7, .incarnation = 8},
                         .addresses = {"10.0.0.3"},
                         .known_addresses = {},
                         .network = {},
                         .cpu_count = 36,
                         .hosts_endpoint = false,
                         .stdout_is_terminal = false,
                         .stderr_is_terminal = true};
    const auto agent = agent_config(config, Entry{{"python3", "-u", "/x/train.py"}}, {{"A", "b"}}, node);
    CHECK(agent.supervisor.stop_signals == config.handled_signals);
    CHECK(agent.supervisor.repeated_signal == 0);
    const Environment in_slurm{{"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}};
    CHECK(agent_config(config, {}, in_slurm, node).supervisor.repeated_signal == SIGTERM);
    const auto& join = agent.supervisor.join;
    CHECK(join.terms.fixed_world);
    CHECK(join.terms.nodes_min == 3);
    CHECK(join.terms.restarts_max == 5);
    CHECK(join.terms.stalled_restarts_max == 0);
    CHECK(join.terms.lease_ms == 2'000);
    CHECK(join.slots == 4);
    CHECK(join.node_rank == 2);
    CHECK(join.entry == "train.py");
    CHECK(join.addresses == std::vector<std::string>{"10.0.0.3"});
    CHECK(agent.workers.master_address == "gpu01");
    CHECK(agent.workers.master_port == 29511);
    CHECK(agent.workers.environment.at("A") == "b");
    CHECK(agent.workers.collective_threads == 2);
    REQUIRE(agent.logs.redirects.size() == 4);
    CHECK(agent.logs.redirects[1] == agent::StreamSet{.out = false, .err = true});
    CHECK(agent.logs.redirects[2] == agent::StreamSet{});
    CHECK(agent.logs.tee[3] == agent::StreamSet{.out = true, .err = false});
    CHECK(agent.logs.stderr_is_terminal);
    CHECK_FALSE(agent.ranks_key);

    config.backend = Backend::c10d;
    config.standalone = true;
    const auto client = client_config(config, {}, node);
    CHECK(client.endpoint.host == "127.0.0.1");
    CHECK(client.job == "j7");
    CHECK(client.lease == 2s);
    CHECK(agent_config(config, {}, {}, node).workers.master_port == 0);
}

TEST_CASE("a node is alone where the job has no other one, and its daemon is in the same process") {
    LaunchConfig config;
    const auto is_alone = [&](bool hosts_endpoint) {
        NodeFacts node;
        node.hosts_endpoint = hosts_endpoint;
        const bool alone = client_config(config, {}, node).is_alone;
        CHECK(agent_config(config, {}, {}, node).is_alone == alone);
        return alone;
    };
    config.nodes_max = 1;
    CHECK(is_alone(true));
    CHECK_FALSE(is_alone(false));  // musterd, or leaders that etcd names
    config.more_endpoints = {{"gpu02", 29511}};
    CHECK_FALSE(is_alone(true));
    config.more_endpoints.clear();
    config.nodes_max = 2;
    CHECK_FALSE(is_alone(true));
}

TEST_CASE("threads for large collectives are a quarter of the CPUs that a worker counts as its own") {
    LaunchConfig config;
    config.workers_per_node = 2;
    const auto threads = [&](std::uint32_t cpu_count) {
        NodeFacts node;
        node.cpu_count = cpu_count;
        return agent_config(config, {}, {}, node).workers.collective_threads;
    };
    const auto bound = [](std::uint32_t first, std::uint32_t count) {
        agent::Placement placement;
        for (std::uint32_t cpu = first; cpu < first + count; ++cpu) placement.cpus.push_back(cpu);
        return placement;
    };
    CHECK(threads(2) == 1);
    CHECK(threads(16) == 2);
    CHECK(threads(128) == 4);
    config.placements = {bound(0, 16), bound(0, 16)};  // both on one NUMA node of many
    CHECK(threads(128) == 2);
    CHECK(threads(8) == 1);  // a control group gives less
    config.placements = {bound(0, 16), bound(16, 8)};
    CHECK(threads(128) == 2);
    config.placements = {bound(0, 64), bound(64, 64)};
    CHECK(threads(128) == 4);
}

TEST_CASE("the time in the queue is that since the submission, if it is one") {
    const Duration now = 1'000'000s + 250ms;
    CHECK(queued_ms("999990", now) == 10'250);
    CHECK(queued_ms("1000000", now) == 250);
    for (const char* wrong : {"", "1000001", "0", "-5", "2026-11-26T10:00:00", "999990.5"})
        CHECK(queued_ms(wrong, now) == 0);
    const Duration later = now + 30 * 24h;
    CHECK(queued_ms("1000000", later) == std::uint64_t{queued_ms_max} + 250);
    CHECK(queued_ms("999999", later) == 0);  // no queue is longer than 30 days
}

TEST_CASE("the ranks of a round prove themselves with a key that follows from the round's secret") {
    LaunchConfig config;
    config.nodes_max = 3;
    const NodeFacts node;
    config.key = std::string(32, 'k');
    const auto keyed = agent_config(config, {}, {}, node);
    CHECK(keyed.ranks_key("of round 3") == rendezvous::derived_key("of round 3", "ranks"));
    CHECK(keyed.ranks_key("of round 3") != keyed.ranks_key("of round 4"));
    CHECK(keyed.ranks_key({}).empty());  // the daemon has to give one
    const auto proofs = [&](const std::string& round_secret, const char* text) {
        return client_config(config, {}, node).peers_hash(round_secret)(text);
    };
    CHECK(proofs("of round 3", "x") == proofs("of round 3", "x"));
    CHECK(proofs("of round 3", "x") != proofs("of round 4", "x"));
    // One node may encrypt without a key of the job: nobody else needs the same bytes.
    config.key.clear();
    config.nodes_max = 1;
    config.wire_security = "encrypt";
    const auto alone = agent_config(config, {}, {}, node);
    REQUIRE(alone.ranks_key);
    CHECK(alone.ranks_key({}).size() == 32);
    CHECK(alone.ranks_key({}) != alone.ranks_key({}));
}

TEST_CASE("a node sends its versions, and the variables of NCCL that must be equal on all nodes") {
    const auto value = [](const Environment& environment, std::string_view component) -> std::string {
        for (const auto& fact : node_versions(environment))
            if (fact.component == component) return fact.version;
        return {};
    };
    CHECK(node_versions({}).front() == native::VersionFact{"muster", value({}, "muster")});
    CHECK(!value({}, "the kernel").empty());
    CHECK(value({}, "the NCCL variables") == "none");
    CHECK(value({{"NCCL_ALGO", "Ring"}, {"NCCL_SOCKET_IFNAME", "eth0"}, {"NCCL_NET", "IB"}, {"NCCL_DEBUG", "INFO"}},
                "the NCCL variables") == "NCCL_ALGO=Ring NCCL_NET=IB");
    // What differs behind the cut differs too.
    const auto cut = [&](char last) {
        return value({{"NCCL_ALGO", std::string(400, 'x') + last}}, "the NCCL variables");
    };
    CHECK(cut('a').size() <= native::name_bytes_max);
    CHECK(cut('a') != cut('b'));
    CHECK(node_versions({}).size() <= native::versions_max);
    test::ScratchFolder folder;
    for (const char* name : {"torch-2.13.0+cpu.dist-info", "nvidia_nccl_cu13-2.28.9.dist-info",
                             "nvidia_cuda_runtime-13.0.96.dist-info", "torchvision-1.dist-info"})
        std::filesystem::create_directories(folder / (std::string("lib/python3.11/site-packages/") + name));
    const Environment active{{"VIRTUAL_ENV", folder.string()}};
    CHECK(value(active, "PyTorch") == "2.13.0+cpu");
    CHECK(value(active, "NCCL") == "2.28.9");
    CHECK(value(active, "CUDA") == "13.0.96");
    CHECK(value({{"VIRTUAL_ENV", "/none"}}, "PyTorch").empty());
    // Where no environment is active, as in most containers.
    std::filesystem::create_directories(folder / "bin");
    std::filesystem::copy_file("/proc/self/exe", folder / "bin/python3");
    CHECK(value({{"PATH", folder / "bin"}}, "PyTorch") == "2.13.0+cpu");
    for (const char* address : {"0000:e0:00.0", "0000:e1:00.0"})
        std::filesystem::create_directories(folder / (std::string("sys/bus/pci/drivers/nvidia/") + address));
    const auto versions = node_versions({}, folder.string());
    CHECK(std::ranges::find(versions, native::VersionFact{"the GPUs", "2 GPUs"}) != versions.end());
}

TEST_CASE("what is looked at while a node joins depends on who may come") {
    LaunchConfig config;
    CHECK(agent_config(config, {}, {}, {}).preflight->skip.contains("names"));
    config.nodes_max = 2;
    config.endpoint = {"node0", 29400};
    config.checkpoint_dir = "/none";
    const auto plan = agent_config(config, {}, {{"TMPDIR", "/dev"}}, {}).preflight;
    REQUIRE(plan.has_value());
    CHECK(plan->skip == std::set<std::string>{"firewall", "open-files"});
    CHECK(plan->directories == std::vector<std::string>{"/none", "/dev"});
    config.preflight = Preflight::off;
    CHECK_FALSE(agent_config(config, {}, {}, {}).preflight.has_value());
}

TEST_CASE("--console=auto folds on a terminal with more than 8 workers") {
    using Lines = ConsoleLines;
    const auto among = [](Lines lines, std::uint32_t workers, bool out, bool err) {
        LaunchConfig config;
        config.console = lines;
        config.workers_per_node = workers;
        NodeFacts node;
        node.stdout_is_terminal = out;
        node.stderr_is_terminal = err;
        return agent_config(config, {}, {}, node).logs.fold_among;
    };
    CHECK(among(Lines::automatic, 9, true, true) == 9);
    CHECK(among(Lines::automatic, 8, true, true) == 0);
    CHECK(among(Lines::automatic, 9, false, true) == 0);
    CHECK(among(Lines::automatic, 9, true, false) == 0);
    CHECK(among(Lines::fold, 2, false, false) == 2);
    CHECK(among(Lines::all, 64, true, true) == 0);
}

TEST_CASE("workers get the package of the back end for PyTorch if it is asked for, unless they have one") {
    LaunchConfig config;
    Environment environment{{"MUSTER_TORCH_BACKEND", "muster"}};
    REQUIRE(offer_torch_package(config, environment).has_value());
    CHECK(environment.empty());  // --torch-backend=torch beside the variable

    config.torch_backend = "muster";
    environment = {{"PYTHONPATH", "/somewhere"}};
    REQUIRE(offer_torch_package(config, environment).has_value());
    CHECK(environment["MUSTER_TORCH_BACKEND"] == "muster");
    const auto path = environment["PYTHONPATH"];
    CHECK(path.starts_with("/somewhere:/"));
    CHECK(std::filesystem::exists(path.substr(path.find(':') + 1) + "/muster/torch/__init__.py"));

    const test::ScratchFolder folder;
    std::filesystem::create_directories(folder / "muster/torch");
    std::ofstream(folder / "muster/torch/__init__.py") << "";
    // Not all of it: PyTorch would not load it.
    environment = {{"PYTHONPATH", folder.string()}};
    REQUIRE(offer_torch_package(config, environment).has_value());
    CHECK(environment["PYTHONPATH"].starts_with(folder.string() + ":/"));
    std::ofstream(folder / "muster_torch.py") << "";
    std::filesystem::create_directories(folder / "muster-1.dist-info");
    std::ofstream(folder / "muster-1.dist-info/entry_points.txt") << "";
    environment = {{"PYTHONPATH", "/somewhere:" + folder.string()}};
    REQUIRE(offer_torch_package(config, environment).has_value());
    CHECK(environment["PYTHONPATH"] == "/somewhere:" + folder.string());

    environment = {{"TORCH_DEVICE_BACKEND_AUTOLOAD", "0"}};
    const auto refused = offer_torch_package(config, environment);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().context.find("TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps PyTorch") != std::string::npos);

    config.torch_backend.clear();
    config.torch_steps = true;
    CHECK(offer_torch_package(config, environment).error().context.find("so no steps are reported; unset") !=
          std::string::npos);
    environment.clear();
    REQUIRE(offer_torch_package(config, environment).has_value());
    CHECK(environment["MUSTER_TORCH_STEPS"] == "1");
    CHECK_FALSE(environment.contains("MUSTER_TORCH_BACKEND"));
    config.torch_steps = false;
    REQUIRE(offer_torch_package(config, environment).has_value());
    CHECK_FALSE(environment.contains("MUSTER_TORCH_STEPS"));
}

TEST_CASE("what the preflight found of the own node is a health check's finding where others may take its place") {
    LaunchConfig config;
    config.preflight_fault = "--preflight: node-links: slow";
    config.health_dir.clear();
    const NodeFacts node;
    config.nodes_min = 2;
    config.nodes_max = 3;
    const auto parks = agent_config(config, {}, {}, node);
    CHECK(parks.supervisor.checks_health);
    CHECK(parks.health.known_fault == config.preflight_fault);
    CHECK(parks.supervisor.health_interval == Duration{});
    CHECK(parks.supervisor.sick_node == agent::SupervisorConfig::SickNode::parks);
    for (const auto fixed : {1U, 2U}) {
        config.nodes_min = config.nodes_max = fixed;
        CHECK(agent_config(config, {}, {}, node).health.known_fault.empty());
    }
    config.spares = 1;
    CHECK(agent_config(config, {}, {}, node).health.known_fault == config.preflight_fault);
}
