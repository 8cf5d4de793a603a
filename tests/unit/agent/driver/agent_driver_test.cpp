// The driver against a scripted link, host and store: that actions reach them, that facts about a failure are gathered,
// that signals, timers and feeding work. The decisions are tested with the supervisor.
#include <sys/socket.h>
#include <sys/un.h>

#include <boost/asio/ip/tcp.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>

#include "agent/driver/agent.h"
#include "agent/supervision/worker_environment.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/local/codec.h"
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using test::show;

namespace {

namespace fs = std::filesystem;

using Diary = std::vector<std::string>;

struct FakeLink : RendezvousLink {
    explicit FakeLink(Diary& book) : diary(book) {}
    void join(native::Join join) override { diary.push_back(cat("join after ", join.last_round)); }
    void workers_failed(std::vector<Failure> list) override {
        diary.push_back(cat("failed ", show(list)));
        failures = std::move(list);
    }
    void workers_succeeded() override { diary.push_back("succeeded"); }
    void round_report(native::RoundReport report) override { diary.push_back(cat("report of round ", report.round)); }
    void leave(std::string) override { diary.push_back("leave"); }
    void end_acknowledged() override { diary.push_back("acknowledge"); }
    void command(native::Command command) override { diary.push_back(cat("command: ", command.why)); }
    void fault_answer(native::FaultAnswer answer) override {
        diary.push_back(cat("fault ", answer.number, answer.done ? " done: " : " not done: ", answer.text));
    }
    void workers_seen(native::WorkersSeen) override {}
    void cut_off(Duration length) override { diary.push_back(cat("cut off for ", muster::describe(length))); }
    void close(std::function<void()> closed) override {
        diary.push_back("close link");
        closed();
    }

    [[nodiscard]] Instant heard_until() const override { return heard; }

    Diary& diary;
    Instant heard = Instant::max();
    std::vector<Failure> failures;
};

struct FakeHost : ProcessHost {
    explicit FakeHost(Diary& book) : diary(book) {}
    void start(std::vector<WorkerCommand> list) override {
        diary.push_back(cat("start ", list.size()));
        commands = std::move(list);
    }
    void signal_leaders(int signal) override { diary.push_back(cat("signal ", signal_name(signal))); }
    void follow_up(int, AwaitedTimeouts) override {}
    void keep(const std::vector<std::uint32_t>& local_ranks) override {
        std::string list;
        for (const auto local_rank : local_ranks) list += cat(" ", local_rank);
        diary.push_back(cat("keep", list.empty() ? " none" : list));
    }
    void remove_after_death(std::string) override {}
    void signal_group(std::uint32_t local_rank, int signal) override {
        diary.push_back(cat("signal group ", local_rank, " ", signal_name(signal)));
    }
    void kill_tree() override { diary.push_back("kill tree"); }
    void kill_guardian() override { diary.push_back("kill guardian"); }
    void feed() override { ++feed_count; }

    Diary& diary;
    std::vector<WorkerCommand> commands;
    int feed_count = 0;
};

struct FakeStores : RoundStoreHost {
    explicit FakeStores(Diary& book) : diary(book) {}
    Result<RoundPorts> open() override {
        diary.push_back("open store");
        return RoundPorts{4000, 4000};
    }
    void serve(const native::Assigned& assigned) override { diary.push_back(cat("serve round ", assigned.round)); }
    Result<std::optional<Endpoint>> relay(const Endpoint& store) override {
        if (relay_port == 0) return std::optional<Endpoint>();
        diary.push_back(cat("relay to ", describe(store)));
        if (relay_port == 1) return Error{Errc::io, "no relay"};
        return std::optional<Endpoint>(Endpoint{"127.0.0.1", relay_port});
    }
    void close() override { diary.push_back("close store"); }
    Diary& diary;
    std::uint16_t relay_port = 0;
};

/// An agent with two workers and a temporary log directory.
class Rig {
  public:
    Rig() {
        std::string name = fs::temp_directory_path() / "muster_agent_test_XXXXXX";
        directory = ::mkdtemp(name.data());
        config.supervisor = test::Story::config();
        config.workers.worker_count = 2;
        config.workers.argv = {"/bin/true", "$local_rank"};
        config.workers.environment = {{"TMPDIR", directory.string()}};
        config.logs.base = (directory / "logs").string();
        config.lease = 50ms;
    }
    ~Rig() {
        agent.reset();
        std::error_code ignored;
        fs::remove_all(directory, ignored);
    }
    void start() {
        agent = std::make_unique<Agent>(loop, config, link, host, stores);
        agent->on_end = [this](Ending e) { ending = std::move(e); };
        agent->start();
    }
    void start_workers(Round round = 0) {
        native::Assigned assigned;
        assigned.round = round;
        assigned.store_addresses = {"10.0.0.1"};
        assigned.store_port = 4000;
        link.on_message(assigned);
    }
    /// Of two nodes this one is not the store's. The store, which only listens, ends with what is returned.
    boost::asio::ip::tcp::acceptor start_away_from_store() {
        boost::asio::ip::tcp::acceptor store(loop, {boost::asio::ip::make_address("127.0.0.9"), 0});
        native::Assigned assigned;
        assigned.round = 0;
        assigned.group_rank = 1;
        assigned.group_world_size = 2;
        assigned.store_addresses = {"127.0.0.9"};
        assigned.store_port = store.local_endpoint().port();
        link.on_message(assigned);
        return store;
    }
    void end_worker(std::uint32_t local_rank, WorkerEnd end, std::string stderr_tail = "") {
        host.on_event(WorkerEnded{.local_rank = local_rank,
                                  .pid = 100,
                                  .end = std::move(end),
                                  .at = std::chrono::steady_clock::now(),
                                  .stderr_tail = std::move(stderr_tail)});
    }
    bool run_until(const std::function<bool()>& done) {
        const auto deadline = std::chrono::steady_clock::now() + 5s;
        while (!done() && std::chrono::steady_clock::now() < deadline) {
            loop.restart();
            loop.run_one_for(20ms);
        }
        return done();
    }
    /// What was done since the last call.
    std::string news() {
        std::string out;
        for (; told < diary.size(); ++told) out += cat(out.empty() ? "" : "; ", diary[told]);
        return out;
    }
    std::string variable(std::size_t worker, const std::string& name) const {
        for (const auto& entry : host.commands.at(worker).environment)
            if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
        return "(unset)";
    }

    fs::path directory;
    AgentConfig config;
    boost::asio::io_context loop;
    Diary diary;
    std::size_t told = 0;
    FakeLink link{diary};
    FakeHost host{diary};
    FakeStores stores{diary};
    std::unique_ptr<Agent> agent;
    std::optional<Ending> ending;
};

}  // namespace

TEST_CASE("a job that succeeds goes from the store to the acknowledged end") {
    Rig rig;
    rig.start();
    CHECK(rig.news() == "open store; join after -1");
    rig.start_workers();
    CHECK(rig.news() == "serve round 0; start 2");
    CHECK(rig.host.commands.at(1).argv == std::vector<std::string>{"/bin/true", "1"});
    CHECK(rig.host.commands.at(1).heading == "--- round 0 ---");
    REQUIRE(rig.host.commands.at(1).owner);
    CHECK(rig.host.commands.at(1).owner->rank == 1);
    rig.end_worker(0, Exited{0});
    rig.end_worker(1, Exited{0});
    CHECK(rig.news() == "succeeded");
    rig.link.on_message(native::JobEnded{});
    CHECK(rig.news() == "kill tree");
    rig.host.on_event(TreeEmpty{});
    CHECK(rig.news() == "acknowledge; close store; close link");
    REQUIRE(rig.run_until([&] { return rig.ending.has_value(); }));
    CHECK(std::holds_alternative<JobSucceeded>(*rig.ending));
}

TEST_CASE("with a relay of the node its workers reach the store there, and know the store's own address") {
    Rig rig;
    rig.stores.relay_port = 4711;
    rig.start();
    const auto store = rig.start_away_from_store();
    const auto done = rig.run_until([&] { return !rig.host.commands.empty(); });
    const auto news = rig.news();
    INFO(news);
    REQUIRE(done);
    CHECK(news.find(cat("relay to 127.0.0.9:", store.local_endpoint().port())) != std::string::npos);
    CHECK(rig.variable(0, "MASTER_ADDR") == "127.0.0.1");
    CHECK(rig.variable(0, "MASTER_PORT") == "4711");
    CHECK(rig.variable(0, "MUSTER_STORE_ADDR") == "127.0.0.9");
}

TEST_CASE("workers that no relay can serve are not started: this node is lost to the others, with the reason") {
    Rig rig;
    rig.stores.relay_port = 1;
    rig.start();
    const auto store = rig.start_away_from_store();
    std::string news;
    REQUIRE(rig.run_until([&] { return (news += rig.news()).find("kill tree") != std::string::npos; }));
    CHECK(rig.host.commands.empty());
    rig.host.on_event(TreeEmpty{});
    REQUIRE(rig.run_until([&] { return rig.ending.has_value(); }));
    const auto* failed = std::get_if<AgentFailed>(&*rig.ending);
    REQUIRE(failed != nullptr);
    CHECK(failed->why == "this node cannot start its workers: the workers cannot reach their store: no relay");
}

TEST_CASE("a failure carries the error file, its time and the last lines of stderr") {
    Rig rig;
    rig.start();
    rig.start_workers();
    const std::string error_file = rig.variable(1, "TORCHELASTIC_ERROR_FILE");
    REQUIRE(fs::is_directory(fs::path(error_file).parent_path()));
    std::ofstream(error_file) << R"({"message": {"message": "ValueError: bad batch",
        "extraInfo": {"py_callstack": "Traceback", "timestamp": "1700000001"}}})";
    rig.end_worker(1, Exited{1}, "last words");
    REQUIRE(rig.link.failures.size() == 1);
    const Failure& failure = rig.link.failures.front();
    CHECK(failure.message == "Traceback\nValueError: bad batch");
    CHECK(failure.error_file == error_file);
    CHECK(failure.log_directory == fs::path(error_file).parent_path().string());
    CHECK(failure.stderr_tail == "last words");
    CHECK(failure.at_ns > 0);
    CHECK(failure.wall_time_s == 1'700'000'001);
}

TEST_CASE("an error file of an earlier round is put aside and kept") {
    Rig rig;
    rig.start();
    rig.start_workers(0);
    const fs::path error_file = rig.variable(0, "TORCHELASTIC_ERROR_FILE");
    std::ofstream(error_file) << R"({"message": "old"})";
    rig.link.on_message(native::RoundEnded{0, native::RoundEndReason::node_lost, false, "gpu07 was lost"});
    rig.end_worker(0, Signaled{SIGTERM, false});
    rig.end_worker(1, Signaled{SIGTERM, false});
    rig.host.on_event(TreeEmpty{});
    rig.start_workers(1);
    CHECK(rig.variable(0, "TORCHELASTIC_ERROR_FILE") == error_file);
    CHECK_FALSE(fs::exists(error_file));
    CHECK(fs::exists(error_file.parent_path() / "error.round-0.json"));
    rig.end_worker(0, Exited{1});
    CHECK(rig.link.failures.front().message.empty());
}

TEST_CASE("handled signals are forwarded and the second one kills") {
    Rig rig;
    rig.config.handled_signals = {SIGUSR1};
    rig.start();
    rig.start_workers();
    rig.news();
    ::raise(SIGUSR1);
    REQUIRE(rig.run_until([&] { return rig.diary.back() == "signal SIGUSR1"; }));
    ::raise(SIGUSR1);
    REQUIRE(rig.run_until([&] { return rig.diary.back() == "kill tree"; }));
    rig.end_worker(0, Signaled{SIGKILL, false});
    rig.end_worker(1, Signaled{SIGKILL, false});
    rig.host.on_event(TreeEmpty{});
    REQUIRE(rig.run_until([&] { return rig.ending.has_value(); }));
    CHECK(show(*rig.ending) == "Cancelled SIGUSR1");
}

TEST_CASE("a signal during the join ends the agent") {
    Rig rig;
    rig.config.handled_signals = {SIGUSR1};
    rig.start();
    ::raise(SIGUSR1);
    REQUIRE(rig.run_until([&] { return rig.ending.has_value(); }));
    CHECK(rig.news() == "open store; join after -1; leave; close store; close link");
}

TEST_CASE("the grace is kept by the clock") {
    Rig rig;
    rig.config.supervisor.grace = 60ms;
    rig.start();
    rig.start_workers();
    const auto begin = std::chrono::steady_clock::now();
    rig.link.on_message(native::RoundEnded{0, native::RoundEndReason::node_lost, false, "gpu07 was lost"});
    REQUIRE(rig.run_until([&] { return rig.diary.back() == "kill tree"; }));
    CHECK(std::chrono::steady_clock::now() - begin >= 60ms);
}

TEST_CASE("the guardian is fed from the start, every fifth of the lease") {
    Rig rig;
    rig.start();
    CHECK(rig.host.feed_count == 1);
    REQUIRE(rig.run_until([&] { return rig.host.feed_count == 4; }));
}

TEST_CASE("a node that cannot make its workers ready is lost to the others, with the reason") {
    Rig rig;
    rig.config.workers.virtual_local_rank = true;
    rig.config.workers.environment["CUDA_VISIBLE_DEVICES"] = "0";
    rig.start();
    rig.news();
    rig.start_workers();
    rig.news();
    CHECK(rig.link.failures.front().kind == FailureKind::node_lost);
    CHECK(rig.link.failures.front().message.find("for local rank 1") != std::string::npos);
    CHECK(rig.host.commands.empty());
}

TEST_CASE("a log directory that is a file is told before anybody joins") {
    Rig rig;
    std::ofstream(rig.config.logs.base) << "x";
    rig.start();
    REQUIRE(rig.run_until([&] { return rig.ending.has_value(); }));
    CHECK(rig.news() == "close link");
    const auto* failed = std::get_if<SetUpFailed>(&*rig.ending);
    REQUIRE(failed != nullptr);
    CHECK(failed->why.find(rig.config.logs.base) != std::string::npos);
}

TEST_CASE("a log directory with nothing in it is not pointed at") {
    Rig rig;
    rig.start();
    rig.start_workers();
    rig.end_worker(0, Exited{1});
    REQUIRE(rig.link.failures.size() == 1);
    CHECK(rig.link.failures.front().log_directory.empty());
    CHECK(rig.link.failures.front().wall_time_s > 1'700'000'000);
}

TEST_CASE("a signal beside a log directory that cannot be made ends the agent once") {
    Rig rig;
    rig.config.handled_signals = {SIGUSR1};
    std::ofstream(rig.config.logs.base) << "x";
    int ends = 0;
    rig.start();
    rig.agent->on_end = [&](Ending ending) {
        ++ends;
        rig.ending = std::move(ending);
    };
    ::raise(SIGUSR1);
    REQUIRE(rig.run_until([&] { return rig.ending.has_value(); }));
    rig.loop.restart();
    rig.loop.run_for(50ms);  // whatever else was posted
    CHECK(ends == 1);
    CHECK(rig.news() == "close link");
}

TEST_CASE("what an ended worker left in its group is signalled by the host") {
    Rig rig;
    rig.start();
    rig.start_workers();
    WorkerEnded ended{.local_rank = 1, .pid = 100, .end = Exited{1}, .at = std::chrono::steady_clock::now()};
    ended.group_left = true;
    rig.news();
    rig.host.on_event(ended);
    CHECK(rig.news() == "failed rank 1: exit code 1; signal SIGTERM; signal group 1 SIGTERM");
}

TEST_CASE("directories that nobody asked for and nobody used are removed at the end") {
    Rig rig;
    rig.config.logs.base.clear();
    rig.start();
    rig.start_workers();
    const fs::path kept = fs::path(rig.variable(0, "TORCHELASTIC_ERROR_FILE")).parent_path();
    std::ofstream(kept / "notes.txt") << "kept";
    const fs::path empty = fs::path(rig.variable(1, "TORCHELASTIC_ERROR_FILE")).parent_path();
    CHECK(fs::exists(empty));
    rig.end_worker(0, Exited{0});
    rig.end_worker(1, Exited{0});
    rig.link.on_message(native::JobEnded{});
    rig.host.on_event(TreeEmpty{});
    CHECK_FALSE(fs::exists(empty));
    CHECK(fs::exists(kept / "notes.txt"));
}

TEST_CASE("with --log-dir /dev/null nothing is made on disk") {
    Rig rig;
    rig.config.logs.none = true;
    rig.config.logs.base.clear();
    rig.start();
    rig.start_workers();
    CHECK(rig.variable(0, "TORCHELASTIC_ERROR_FILE").empty());
    CHECK(fs::is_empty(rig.directory));
}

TEST_CASE("an agent may be destroyed at any moment, also by its own end") {
    Rig rig;
    rig.start();
    rig.agent->on_end = [&rig](Ending) { rig.agent.reset(); };
    rig.link.on_lost("gone");
    REQUIRE(rig.run_until([&] { return rig.agent == nullptr; }));
    rig.link.on_lost("gone again");
    rig.host.on_event(TreeEmpty{});
    rig.loop.poll();
}

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
        if (variable.starts_with("MUSTER_AGENT_SOCKET=")) channel = variable.substr(variable.find('=') + 1);
    }
    for (const auto& name : variables_of_a_round()) CHECK(names.contains(name) == (name != "TORCHELASTIC_ERROR_FILE"));
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
