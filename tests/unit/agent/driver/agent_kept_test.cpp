// The driver and workers that outlive their round: what goes over their channel, what is started, and their lease.
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <fstream>
#include <set>

#include "agent/supervision/worker_environment.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/wire/local/codec.h"
#include "tests/unit/agent/driver/agent_rig.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

/// The runtime's end of the channel of one worker.
class KeptWorker {
  public:
    explicit KeptWorker(const Rig& rig) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        const auto address = rig.variable(0, "MUSTER_AGENT_SOCKET");
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        address.copy(name.sun_path + 1, sizeof name.sun_path - 2, 1);
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
        REQUIRE(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
        say(local::Hello{.pid = 100, .runtime = "test", .token = rig.variable(0, "MUSTER_AGENT_TOKEN")});
        say(local::CanKeep{true});
    }
    void say(const local::Message& message) {
        const auto bytes = local::encode(message);
        REQUIRE(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
    }
    /// The next message of this kind. An empty one: it has not come.
    template <class Message>
    std::optional<Message> next(Rig& rig) {
        std::optional<Message> found;
        rig.run_until([&] {
            char bytes[local::datagram_bytes_max];
            const auto size = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
            if (size <= 0) return false;
            const auto message = local::decode({bytes, static_cast<std::size_t>(size)}, local::Sender::agent);
            if (const auto* one = message ? std::get_if<Message>(&*message) : nullptr) found = *one;
            return found.has_value();
        });
        return found;
    }

  private:
    FileDescriptor socket_;
};

/// Worker 1 was killed, worker 0 is held, and this node has joined.
void hold_worker_0(Rig& rig, std::optional<KeptWorker>& worker) {
    rig.start();
    rig.start_workers();
    rig.host.on_event(WorkerStarted{0, 100});
    rig.host.on_event(WorkerStarted{1, 101});
    worker.emplace(rig);
    rig.run_until([&] { return rig.loop.poll() == 0; });
    rig.news();
    rig.end_worker(1, Signaled{SIGKILL, false});
    const auto hold = worker->next<local::Hold>(rig);
    REQUIRE(hold);
    CHECK(hold->limit_ms == 5000);
    CHECK(rig.news().ends_with("keep 0"));
    worker->say(local::Held{});
    std::string news;
    REQUIRE(rig.run_until([&] { return (news += rig.news()).ends_with("kill tree"); }));
    rig.host.on_event(TreeEmpty{});
    rig.link.on_message(native::RoundEnded{0, native::RoundEndReason::worker_failed, false, "rank 1 failed"});
    CHECK(rig.news().ends_with("close store; open store; join after 0"));
}

}  // namespace

TEST_CASE("a worker that can be kept is kept, although the agent reads of that after the end of another one") {
    Rig rig;
    rig.start();
    rig.start_workers();
    rig.host.on_event(WorkerStarted{0, 100});
    rig.host.on_event(WorkerStarted{1, 101});
    KeptWorker worker(rig);  // nobody has accepted its connection
    rig.news();
    SECTION("on this node") {
        rig.end_worker(1, Signaled{SIGKILL, false});
    }
    SECTION("on another one") {
        rig.link.on_message(native::RoundEnded{0, native::RoundEndReason::worker_failed, false, "rank 5 failed"});
    }
    CHECK(worker.next<local::Hold>(rig));
    CHECK(rig.news().find("keep 0") != std::string::npos);
}

TEST_CASE("a held worker gets the variables of the next round, and only the dead one is started") {
    Rig rig;
    std::optional<KeptWorker> worker;
    hold_worker_0(rig, worker);
    const auto error_file = rig.variable(0, "TORCHELASTIC_ERROR_FILE");
    const auto first_channel = rig.variable(0, "MUSTER_AGENT_SOCKET");
    rig.start_workers(1);
    CHECK(rig.news() == "serve round 1; start 1; keep none");
    CHECK(rig.host.commands.at(0).local_rank == 1);
    const auto resumed = worker->next<local::Resumed>(rig);
    REQUIRE(resumed);
    std::set<std::string> names;
    std::string channel;
    for (const auto& variable : resumed->variables) {
        names.insert(variable.substr(0, variable.find('=')));
        if (variable.starts_with("MUSTER_ROUND")) CHECK(variable == "MUSTER_ROUND=1");
        if (variable.starts_with("RANK")) CHECK(variable == "RANK=0");
        if (variable.starts_with("MUSTER_STORE_ADDR")) CHECK(variable == "MUSTER_STORE_ADDR");  // unset
        if (variable.starts_with("MUSTER_AGENT_IFNAME")) CHECK(variable == "MUSTER_AGENT_IFNAME");
        if (variable.starts_with("MUSTER_AGENT_SOCKET=")) channel = variable.substr(variable.find('=') + 1);
    }
    for (const auto variable : variables_of_a_round()) {
        const std::string name(variable);
        CHECK(names.contains(name) == (name != "TORCHELASTIC_ERROR_FILE"));
    }
    CHECK((!channel.empty() && channel != first_channel));
    // Its files stay where it began.
    std::ofstream(error_file) << R"({"message": {"message": "late", "extraInfo": {"timestamp": "1"}}})";
    rig.end_worker(0, Exited{1});
    REQUIRE(rig.link.failures.size() == 1);
    CHECK(rig.link.failures.back().error_file == error_file);
}

TEST_CASE("a held worker ends when its agent has heard nothing from the rendezvous for a lease") {
    Rig rig;
    std::optional<KeptWorker> worker;
    hold_worker_0(rig, worker);
    rig.link.heard = std::chrono::steady_clock::now();
    std::string news;
    REQUIRE(rig.run_until([&] { return (news += rig.news()).ends_with("keep none; kill tree"); }));
    CHECK(std::chrono::steady_clock::now() - rig.link.heard >= rig.config.lease * 88 / 100);
}

TEST_CASE("a held worker without a next round is told so before its signal") {
    Rig rig;
    std::optional<KeptWorker> worker;
    hold_worker_0(rig, worker);
    rig.link.on_message(native::Parked{});
    CHECK(rig.news() == "expect 2; keep none; signal SIGTERM");
    const auto over = worker->next<local::RoundEnded>(rig);
    REQUIRE(over);
    CHECK(over->why == "this node is a spare");
}

TEST_CASE("the successor of a held worker that has died hears of its round's end") {
    Rig rig;
    std::optional<KeptWorker> worker;
    hold_worker_0(rig, worker);
    rig.end_worker(0, Signaled{SIGKILL, false});
    CHECK(rig.news() == "keep none; kill tree");
    rig.host.on_event(TreeEmpty{});
    rig.start_workers(1);
    CHECK(rig.news() == "serve round 1; start 2");
    worker.emplace(rig);
    rig.run_until([&] { return rig.loop.poll() == 0; });
    rig.link.on_message(native::RoundEnded{1, native::RoundEndReason::worker_failed, true, "rank 1 failed"});
    CHECK(worker->next<local::RoundEnded>(rig));
}
