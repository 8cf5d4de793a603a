// Around the guardians: what programs beside them leave behind, what is asked for while one is replaced, and their
// control groups.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <filesystem>
#include <functional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "agent/process/process_tree.h"
#include "agent/process/side_process.h"
#include "agent/process/worker_cgroup.h"
#include "tests/integration/process/host_fixture.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

/// Waits for the end of a child, and leaves its status to others.
void await_end(pid_t pid) {
    siginfo_t end{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT) == 0);
}

bool is_child(pid_t pid) {
    siginfo_t end{};
    return ::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/// Its second guardian stands by, and the host has heard of it.
void await_reserve(HostFixture& fixture) {
    CHECK(describe(fixture.run(act({"exit", "3"}, 9)).end) == describe(Exited{3}));
    REQUIRE(fixture.run_until([] { return guardians().size() == 2; }));
    fixture.events.clear();
}

/// Runs `work` when the guardian is lost and the next one does not serve yet: that takes another turn of the loop at
/// least, because the lost one has to be reaped.
void do_between_guardians(HostFixture& fixture, std::function<void()> work) {
    await_reserve(fixture);
    fixture.host->kill_guardian();
    boost::asio::post(fixture.context, std::move(work));
}

}  // namespace

TEST_CASE("what a program beside the agent has left behind is reaped at its end, and no child that is waited for") {
    HostFixture fixture;
    await_reserve(fixture);
    const auto both = guardians();
    const auto check = start_side_process({actor(), "session", "0"}, {});
    REQUIRE(check.has_value());
    CHECK(::waitpid(check->pid, nullptr, 0) == check->pid);
    const auto children = guardians();
    const auto left =
        std::ranges::find_if(children, [&](pid_t pid) { return std::ranges::find(both, pid) == both.end(); });
    REQUIRE(left != children.end());
    fixture.host->reap_left_behind();
    CHECK(descendants_of(::getpid(), all_processes()).size() == 3);

    ::kill(*left, SIGKILL);
    await_end(*left);
    const auto waited = start_side_process({actor(), "exit", "4"}, {});
    REQUIRE(waited.has_value());
    await_end(waited->pid);
    fixture.host->reap_left_behind();
    CHECK_FALSE(is_child(*left));
    int status = 0;
    CHECK(::waitpid(waited->pid, &status, 0) == waited->pid);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 4));
    CHECK(guardians() == both);
    CHECK(describe(fixture.run(act({"exit", "3"})).end) == describe(Exited{3}));
}

TEST_CASE("the status of a worker whose guardian is lost is left to what reports it") {
    HostFixture fixture;
    await_reserve(fixture);
    fixture.host->start({act({"stubborn"})});
    REQUIRE(fixture.wait_for<WorkerStarted>());
    const auto worker = fixture.all<WorkerStarted>()[0].pid;
    ::kill(fixture.guardian_pid, SIGKILL);
    await_end(fixture.guardian_pid);
    await_end(worker);
    fixture.host->reap_left_behind();
    CHECK(is_child(fixture.guardian_pid));
    CHECK(is_child(worker));
    REQUIRE(fixture.wait_for<GuardianLost>());
    CHECK_FALSE(is_child(worker));
    CHECK(fixture.all<WorkerEnded>().size() == 1);
}

TEST_CASE("a stop that comes while the guardian is replaced reaches the workers whose start waited for the next one") {
    HostFixture fixture;
    do_between_guardians(fixture, [&] {
        fixture.host->start({act({"pause"}, 0), act({"pause"}, 1)});
        fixture.host->signal_leaders(SIGTERM);
        fixture.host->follow_up(SIGTERM, {.idle = 5s, .busy = 10s});
    });
    REQUIRE(fixture.wait_for<WorkerEnded>(2));
    for (const auto& event : fixture.all<WorkerEnded>())
        CHECK(describe(event.end) == describe(Signaled{SIGTERM, false}));
    REQUIRE(fixture.all<GuardianLost>().size() == 1);
    CHECK(fixture.all<GuardianLost>()[0].replaced);
}

TEST_CASE("a kill that comes while the guardian is replaced also ends the workers whose start waited") {
    HostFixture fixture;
    do_between_guardians(fixture, [&] {
        fixture.host->start({act({"stubborn"}, 0), act({"stubborn"}, 1)});
        fixture.host->kill_tree();
    });
    REQUIRE(fixture.wait_for<TreeEmpty>());
    CHECK(fixture.all<WorkerEnded>().size() == 2);
    CHECK(std::holds_alternative<TreeEmpty>(fixture.events.back()));
    CHECK(fixture.all<GuardianLost>().size() == 1);
    CHECK(descendants_of(::getpid(), all_processes()).size() <= 2);  // the guardians
    CHECK(describe(fixture.run(act({"exit", "3"})).end) == describe(Exited{3}));
}

TEST_CASE("both control groups go with a guardian that is stopped at the end, and with one without a successor") {
    for (const bool is_stopped : {true, false}) {
        INFO(is_stopped);
        HostFixture fixture;
        if (fixture.cgroup.empty()) {
            WARN("skipped: no cgroup v2 of our own to write");
            return;
        }
        await_reserve(fixture);
        const auto standbys = standby_cgroup(fixture.cgroup);
        std::filesystem::create_directories(standbys + "/7");  // as for a standby process
        for (const pid_t pid : guardians()) ::kill(pid, is_stopped ? SIGSTOP : SIGKILL);
        const auto has_none = [&] {
            const auto lost = fixture.all<GuardianLost>();
            return !lost.empty() && !lost.back().replaced;
        };
        REQUIRE((is_stopped || fixture.run_until(has_none)));
        fixture.end();
        CHECK_FALSE(std::filesystem::exists(fixture.cgroup));
        CHECK_FALSE(std::filesystem::exists(standbys));
    }
}

TEST_CASE("a control group that could not be made anew for the next round is removed at the end") {
    HostFixture fixture;
    if (fixture.cgroup.empty()) {
        WARN("skipped: no cgroup v2 of our own to write");
        return;
    }
    std::vector<std::string> nested{fixture.cgroup};  // deeper than what is removed
    for (int depth = 0; depth < 17; ++depth) {
        nested.push_back(nested.back() + "/n");
        REQUIRE(std::filesystem::create_directory(nested.back()));
    }
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeEmpty>());
    CHECK(describe(fixture.run(act({"exit", "3"})).end) == describe(Exited{3}));
    for (const auto& path : nested | std::views::drop(1) | std::views::reverse) CHECK(::rmdir(path.c_str()) == 0);
    CHECK(std::filesystem::exists(fixture.cgroup));
    fixture.end();
    CHECK_FALSE(std::filesystem::exists(fixture.cgroup));
}

TEST_CASE("workers that are kept beside a process that does not end go with all that they have started") {
    GuardianConfig config;
    config.cgroup = CgroupUse::never;
    config.stuck_after = 0s;
    HostFixture fixture(config);
    fixture.host->start({act({"pause"}, 0), act({"session", "-1"}, 1)});
    REQUIRE(fixture.wait_for<WorkerStarted>(2));
    std::vector<ProcessFacts> tree;
    REQUIRE(fixture.run_until([&] {
        tree = descendants_of(fixture.guardian_pid, all_processes());
        return tree.size() == 3;
    }));
    const auto started = fixture.all<WorkerStarted>();
    const auto stuck = std::ranges::find(started, 0U, &WorkerStarted::local_rank)->pid;
    // Its tracer alone may reap it: until then it is one of the guardian's processes.
    if (::ptrace(PTRACE_SEIZE, stuck, nullptr, nullptr) != 0) {
        WARN("skipped: no process may be traced here");
        return;
    }
    fixture.host->keep({1});
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeStuck>());
    fixture.end();
    const auto lives = [](const ProcessFacts& one) {
        const auto all = all_processes();
        const auto same = std::ranges::find(all, one.pid, &ProcessFacts::pid);
        return same != all.end() && same->start_time == one.start_time && same->alive();
    };
    const bool all_ended = fixture.run_until([&] { return std::ranges::none_of(tree, lives); });
    for (const auto& one : tree) {
        if (lives(one)) ::kill(one.pid, SIGKILL);
        ::waitpid(one.pid, nullptr, __WALL);
    }
    CHECK(all_ended);
}
