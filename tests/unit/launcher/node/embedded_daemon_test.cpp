#include "launcher/node/embedded_daemon.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <thread>

#include "launcher/node/job_access.h"
#include "launcher/scheduler/mpi_process.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/net/event_loop.h"
#include "tests/support/catch.h"
#include "tests/support/quiet_port.h"

using namespace muster;
using namespace muster::launcher;

namespace {

using Clock = std::chrono::steady_clock;

/// For what must not take until the deadline of a question: far less than an address's part of `patience`.
constexpr Duration soon = 30s;
constexpr Duration patience = 120s;

enum class Then { leaves, falls_silent };
enum class Calls { hung_up, kept };

FileDescriptor listen_at(const std::string& address, int queue_length, std::uint16_t port = 0) {
    FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    const auto name = SocketAddress::from_numeric(address, port);
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    REQUIRE(::bind(listener.get(), name->data(), name->size()) == 0);
    REQUIRE(::listen(listener.get(), queue_length) == 0);
    return listener;
}

/// Has a port of `address` and says `answer` to each of `count` callers, then leaves the port or keeps it and is
/// silent. At 127.0.0.1, which is asked first, nobody else has the port.
class Holder {
  public:
    Holder(const std::string& address, std::string answer, int count, Then then = Then::leaves,
           Calls calls = Calls::hung_up)
        : unused_(address != "127.0.0.1" ? std::make_unique<QuietPort>() : nullptr),
          listener_(listen_at(address, 8, unused_ ? unused_->number() : 0)) {
        port_ = SocketAddress::local_of(listener_.get()).port();
        thread_ = std::thread([this, answer = std::move(answer), count, then, calls] {
            for (int i = 0; i < count; ++i) {
                const FileDescriptor caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
                if (!caller.valid()) return;
                // The port is left before the last answer is given: who has read it finds nobody any more.
                if (i + 1 == count && then == Then::leaves) listener_.reset();
                ::send(caller.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
                char question[512];
                if (calls == Calls::hung_up) ::shutdown(caller.get(), SHUT_WR);
                while (::recv(caller.get(), question, sizeof question, 0) > 0) {
                }
            }
        });
    }
    ~Holder() {
        if (listener_.valid()) ::shutdown(listener_.get(), SHUT_RDWR);
        thread_.join();
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }

  private:
    std::unique_ptr<QuietPort> unused_;
    FileDescriptor listener_;
    std::uint16_t port_ = 0;
    std::thread thread_;
};

/// Has a port of 127.0.0.1 and accepts nothing, with no room for another connection.
class FullQueue {
  public:
    FullQueue() : listener_(listen_at("127.0.0.1", 0)), port_(SocketAddress::local_of(listener_.get()).port()) {
        const auto name = SocketAddress::from_numeric("127.0.0.1", port_);
        for (auto& waiting : waiting_) {
            waiting = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            // There is room for the first.
            if (&waiting != waiting_.data()) ::fcntl(waiting.get(), F_SETFL, O_NONBLOCK);
            const int done = ::connect(waiting.get(), name->data(), name->size());
            REQUIRE((done == 0 || (&waiting != waiting_.data() && errno == EINPROGRESS)));
        }
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }

  private:
    FileDescriptor listener_;
    std::uint16_t port_;
    std::array<FileDescriptor, 4> waiting_;
};

std::string status(const std::string& jobs) {
    return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"embedded\": true, \"jobs\": [" + jobs + "]}";
}

bool no_haste() {
    return false;
}

/// "hosts", "joins", or the complaint.
std::string part_at(std::uint16_t port, const std::vector<std::string>& addresses = {}) {
    LaunchConfig config;
    config.backend = Backend::c10d;
    config.nodes_max = 2;
    config.job = std::string("j");
    config.endpoint = {"here", port};
    rendezvous::EventLoop loop;
    const auto opened = open_daemon(config, Hosting::inferred, addresses, loop, no_haste, {});
    if (!opened) return opened.error().context;
    return *opened != nullptr ? "hosts" : "joins";
}

}  // namespace

TEST_CASE("an endpoint on loopback is served on loopback alone, under each of its names, and so is a job of one node") {
    const auto reaches = [](const std::string& address, std::uint16_t port) {
        const FileDescriptor socket(
            ::socket(SocketAddress::from_numeric(address, 0)->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
        const auto name = SocketAddress::from_numeric(address, port);
        return ::connect(socket.get(), name->data(), name->size()) == 0;
    };
    // On Linux all of 127/8 is this host: 127.0.0.9 stands for its addresses in other networks.
    const std::string other = "127.0.0.9";
    LaunchConfig config;
    config.backend = Backend::c10d;
    config.job = std::string("j");
    for (const auto* host : {"127.0.0.1", "::1", "localhost", "127.0.0.5"}) {
        CAPTURE(host);
        if (host == std::string("::1") && !rendezvous::Listener::open({.address = "::1", .ports = {0, 0}})) continue;
        config.endpoint = {host, 0};
        rendezvous::EventLoop loop;
        const auto opened = open_daemon(config, Hosting::told, {}, loop, no_haste, {});
        REQUIRE(opened.has_value());
        CHECK(reaches("127.0.0.1", config.endpoint.port));
        if (host != std::string("localhost")) CHECK(reaches(host, config.endpoint.port));
        CHECK_FALSE(reaches(other, config.endpoint.port));
    }
    for (const std::uint32_t nodes : {1U, 2U}) {
        config.nodes_max = nodes;
        config.endpoint = {"node1", 0};
        rendezvous::EventLoop loop;
        const auto opened = open_daemon(config, Hosting::told, {}, loop, no_haste, {});
        REQUIRE(opened.has_value());
        CHECK(reaches("127.0.0.1", config.endpoint.port));
        CHECK(reaches(other, config.endpoint.port) == (nodes == 2));
    }
}

TEST_CASE("a job's ports accept other hosts if it has several nodes and an endpoint that is not on loopback") {
    LaunchConfig config;
    config.endpoint = {"node1", 29400};
    CHECK_FALSE(serves_other_hosts(config));
    config.spares = 1;
    CHECK(serves_other_hosts(config));
    config.spares = 0;
    config.nodes_max = 2;
    CHECK(serves_other_hosts(config));
    CHECK(authentication(config) == "none");
    config.key = "k";
    CHECK(authentication(config) == "key");
    config.key.clear();
    config.endpoint.host = "localhost";
    CHECK_FALSE(serves_other_hosts(config));
    CHECK(authentication(config) == "local users");
    config.local_users = LocalUsers::all;
    CHECK(authentication(config) == "none");
    config.more_endpoints = {{"node2", 29400}};
    CHECK(serves_other_hosts(config));
    config.more_endpoints.clear();
    config.local_address = "10.0.0.1";
    CHECK(serves_other_hosts(config));
    config.local_address.clear();
    config.etcd.emplace().members = {{"127.0.0.1", 2379}, {"etcd1", 2379}};
    CHECK(serves_other_hosts(config));
    config.standalone = true;
    CHECK_FALSE(serves_other_hosts(config));
}

TEST_CASE("who hosts: what is told, else static's rank 0, else whose address the endpoint has") {
    LaunchConfig config;
    config.backend = Backend::c10d;
    const auto yes = [] { return true; };
    const auto no = [] { return false; };
    CHECK(hosting(config, yes) == Hosting::inferred);
    CHECK(hosting(config, no) == Hosting::no);
    config.is_host = false;
    CHECK(hosting(config, yes) == Hosting::no);
    config.is_host = true;
    CHECK(hosting(config, no) == Hosting::told);
    config.is_host.reset();
    config.standalone = true;
    CHECK(hosting(config, no) == Hosting::told);
    config.standalone = false;
    config.backend = Backend::fixed;
    config.node_rank = 0;
    CHECK(hosting(config, no) == Hosting::inferred);
    config.node_rank = 1;
    CHECK(hosting(config, yes) == Hosting::no);
}

TEST_CASE("a port that a muster of this job serves makes this node a client") {
    const Holder holder("127.0.0.1", status(R"({"id": "other"}, {"id": "j"})"), 1000);
    CHECK(part_at(holder.port()) == "joins");
}

TEST_CASE("a musterd serves any job, whoever runs it") {
    const Holder holder("127.0.0.1", "HTTP/1.1 200 OK\r\n\r\n{\"jobs\": [{\"id\": \"other\"}]}", 1000);
    CHECK(part_at(holder.port()) == "joins");
}

TEST_CASE("a daemon that serves another of the host's addresses is found there") {
    const Holder holder("127.0.0.2", status(R"({"id": "j"})"), 1000);
    CHECK(part_at(holder.port(), {"127.0.0.2"}) == "joins");
}

TEST_CASE("a musterd at one address that asks for a token is no stranger") {
    const std::string asks = "HTTP/1.1 401 Unauthorized\r\n";
    const Holder musterd("127.0.0.2", asks + "Server: muster\r\nConnection: close\r\n\r\n", 1000);
    CHECK(part_at(musterd.port(), {"127.0.0.2"}) == "joins");
    const Holder stranger("127.0.0.1", asks + "Server: another\r\n\r\n", 1000);
    CHECK(port_owner({{}, stranger.port(), "j", no_haste}, Clock::now() + patience) == PortOwner::stranger);
}

TEST_CASE("a muster that ends while it is asked for its jobs leaves the port to this node") {
    const Holder holder("127.0.0.1", status(""), 1);
    CHECK(part_at(holder.port()) == "hosts");
}

TEST_CASE("whoever has the port and is no muster of this job is named for what it is") {
    const Holder stranger("127.0.0.1", "SSH-2.0-x\r\n", 1000);
    CHECK(port_owner({{}, stranger.port(), "j", no_haste}, Clock::now() + 1h) == PortOwner::stranger);
    const auto no_muster = part_at(stranger.port());
    CHECK(no_muster.find("cannot listen on port") != std::string::npos);
    CHECK(no_muster.find("the process there is not muster and probably belongs to another job: choose another port") !=
          std::string::npos);
    const FullQueue silent;  // this test's, and so no daemon that is stopped
    CHECK(part_at(silent.port()).find("the process there is not muster") != std::string::npos);
    const Holder busy("127.0.0.1", status(R"({"id": "other"})"), 1000);
    CHECK(part_at(busy.port()).find("it serves another job") != std::string::npos);
    const Holder slow("127.0.0.1", status(R"({"id": "other"})"), 1, Then::falls_silent);
    CHECK(part_at(slow.port()).find("it serves another job") != std::string::npos);
    const Holder elsewhere("127.0.0.3", "", 1000);
    CHECK(part_at(elsewhere.port()).find("nobody answers there") != std::string::npos);
}

TEST_CASE("a stranger that says something and does not hang up is named soon, too") {
    for (const std::string answer : {"SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"}) {
        INFO(answer);
        const Holder stranger("127.0.0.1", answer, 1000, Then::leaves, Calls::kept);
        const auto begin = Clock::now();
        CHECK(port_owner({{}, stranger.port(), "j", no_haste}, begin + patience) == PortOwner::stranger);
        CHECK(Clock::now() - begin < soon);
    }
}

TEST_CASE("what no muster says is not listened to further: the port may pass to one meanwhile") {
    const Holder stranger("127.0.0.1", "SSH-2.0-x\r\n", 1, Then::leaves, Calls::kept);
    CHECK(port_owner({{}, stranger.port(), "j", no_haste}, Clock::now() + patience) == PortOwner::nobody);
}

TEST_CASE("a muster that is slow to say all of its status has the whole time") {
    const FileDescriptor listener = listen_at("127.0.0.1", 8);
    const auto port = SocketAddress::local_of(listener.get()).port();
    const std::string all =
        "HTTP/1.1 200 OK\r\nServer: muster\r\n\r\n{\"embedded\": true, \"jobs\": [{\"id\": \"j\"}]}";
    std::thread slow([&] {
        const FileDescriptor caller(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        ::send(caller.get(), all.data(), all.size() / 2, MSG_NOSIGNAL);
        std::this_thread::sleep_for(1500ms);  // past a stranger's second
        ::send(caller.get(), all.data() + all.size() / 2, all.size() - all.size() / 2, MSG_NOSIGNAL);
    });
    CHECK(port_owner({{}, port, "j", no_haste}, Clock::now() + patience) == PortOwner::this_job);
    slow.join();
}

TEST_CASE("whoever is in haste waits for no place in a port's full queue") {
    const FullQueue full;
    int looks = 0;
    const auto begin = Clock::now();
    CHECK(port_owner({{}, full.port(), "j", [&] { return ++looks > 3; }}, begin + patience) == PortOwner::unknown);
    CHECK(Clock::now() - begin < soon);
}

TEST_CASE("whoever is in haste waits for nobody at the port, and leaves it") {
    const Holder silent("127.0.0.1", "", 1, Then::falls_silent);
    int looks = 0;
    const auto owner = port_owner({{}, silent.port(), "j", [&] { return ++looks > 3; }}, Clock::now() + 1h);
    CHECK(owner == PortOwner::unknown);
    LaunchConfig config;
    config.backend = Backend::c10d;
    config.endpoint = {"here", silent.port()};
    rendezvous::EventLoop loop;
    const auto opened = open_daemon(config, Hosting::inferred, {}, loop, [] { return true; }, {});
    REQUIRE(opened.has_value());
    CHECK(*opened == nullptr);
}

TEST_CASE("a node that is told to host asks nobody whose the port is, and says what to do by who has told it") {
    const Holder holder("127.0.0.1", status(""), 1000);
    LaunchConfig config;
    config.endpoint = {"here", holder.port()};
    rendezvous::EventLoop loop;
    const auto opened = open_daemon(config, Hosting::told, {}, loop, no_haste, {});
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == Errc::already_exists);
    CHECK(advice_for_named_host({}, 7).find("without is_host=1 this node would join") != std::string::npos);

    const Environment task{{"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "1"},        {"SLURM_PROCID", "0"},
                           {"SLURM_NODEID", "0"},    {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_STEP_RESV_PORTS", "7000"}};
    CHECK(advice_for_named_host(task, 7000).find("start the step again to get another port") != std::string::npos);
    CHECK(advice_for_named_host(task, 7).find("without is_host=1") != std::string::npos);
    const Environment mpi{
        {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_MCA_ess_base_jobid", "9"}};
    const auto port = mpi_process(mpi).value().port;
    CHECK(advice_for_named_host(mpi, port).find("derived from mpirun's job id") != std::string::npos);
}
