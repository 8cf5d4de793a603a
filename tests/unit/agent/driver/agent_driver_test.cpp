// The driver against a scripted link, host and store: that actions reach them, that facts about a failure are gathered,
// that signals, timers and feeding work. The decisions are tested with the supervisor.
#include <csignal>
#include <fstream>

#include "tests/unit/agent/driver/agent_rig.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

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

TEST_CASE("a spare expects workers, an excluded node and one that stops do not") {
    Rig rig;
    rig.config.handled_signals = {SIGUSR1};
    rig.start();
    rig.news();
    rig.link.on_message(native::Parked{.position = 0, .why = "too many failures"});
    CHECK(rig.news() == "");
    rig.link.on_message(native::Parked{.position = 1, .why = ""});
    CHECK(rig.news() == "expect 2");
    ::raise(SIGUSR1);
    std::string news;
    REQUIRE(rig.run_until([&] { return (news += rig.news()).find("leave") != std::string::npos; }));
    rig.link.on_message(native::Parked{.position = 0, .why = ""});
    news += rig.news();
    CHECK(news.find("expect") == std::string::npos);
}

TEST_CASE("a spare expects no workers that only a round can equip") {
    Rig rig;
    rig.config.workers.environment["TORCH_FR_BUFFER_SIZE"] = "100";
    rig.start();
    rig.news();
    rig.link.on_message(native::Parked{.position = 0, .why = ""});
    CHECK(rig.news() == "expect 0");
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
