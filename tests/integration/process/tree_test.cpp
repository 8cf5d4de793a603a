// Nothing is left behind: whatever dies, in whatever way, the tree below the agent goes by itself. (Within two seconds,
// as scripts/bench/failures measures.)
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "agent/process/process_tree.h"
#include "agent/process/side_process.h"
#include "agent/process/worker_cgroup.h"
#include "rendezvous/base/kernel/cgroup_mounts.h"
#include "tests/integration/process/driver.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

/// Workers that are hard to get rid of: deaf to SIGTERM, with children in other sessions, with daemons.
std::vector<WorkerCommand> hard_workers() {
    return {holding({"stubborn"}, 0), holding({"session", "-1"}, 1), holding({"daemon", "-1"}, 2),
            holding({"daemon", "0"}, 3)};
}

/// Who runs the job, and whether a cgroup helps.
struct Setting {
    std::string name;
    uid_t user = 0;
    CgroupUse cgroup = CgroupUse::never;
};

std::vector<Setting> settings() {
    std::vector<Setting> all;
    if (WorkerCgroup::create("muster-test-probe")) {
        remove_cgroup(own_cgroup_directory(contents("/proc/self/mountinfo"), contents("/proc/self/cgroup")) +
                      "/muster-test-probe");
        all.push_back({"own user, cgroup", 0, CgroupUse::when_delegated});
    } else {
        WARN("skipped: no cgroup v2 of our own to write");
    }
    all.push_back({"own user, no cgroup", 0, CgroupUse::never});
    if (::geteuid() == 0)
        all.push_back({"ordinary user", nobody, CgroupUse::when_delegated});
    else
        WARN("skipped: becoming an ordinary user needs root");
    return all;
}

/// An ordinary user may not enter the build folder: it gets its own copy of the program.
void use_copy(std::vector<WorkerCommand>& workers, const TemporaryDirectory& directory) {
    const auto copy = directory.file("actor");
    std::filesystem::copy_file(actor(), copy, std::filesystem::copy_options::skip_existing);
    ::chmod(copy.c_str(), 0755);
    for (auto& worker : workers) worker.argv[0] = copy;
}

Driver::Plan plan_for(const Setting& setting, const TemporaryDirectory& directory) {
    Driver::Plan plan;
    plan.guardian.cgroup = setting.cgroup;
    plan.guardian.unfed_max = patience;  // the agent may stand still; a test about that sets its own
    plan.user = setting.user;
    plan.workers = hard_workers();
    use_copy(plan.workers, directory);
    return plan;
}

pid_t parent_of(pid_t pid) {
    for (const auto& facts : all_processes())
        if (facts.pid == pid) return facts.parent;
    return 0;
}

bool gone(const std::string& cgroup) {
    return cgroup.empty() || !std::filesystem::exists(cgroup);
}

}  // namespace

TEST_CASE("an agent killed -9 leaves no process") {
    const TemporaryDirectory directory;
    for (const auto& setting : settings()) {
        INFO(setting.name);
        Driver driver(plan_for(setting, directory));
        CHECK(driver.cgroup().empty() == (setting.name != "own user, cgroup"));
        driver.send(SIGKILL);
        CHECK(driver.tree_ended(patience));
        CHECK(gone(driver.cgroup()));
    }
}

TEST_CASE("a stopped agent does not keep its workers: unfed, they are gone") {
    const TemporaryDirectory directory;
    for (const auto& setting : settings()) {
        INFO(setting.name);
        auto plan = plan_for(setting, directory);
        plan.guardian.unfed_max = 5s;  // the agent feeds it while the workers start, and may stand still meanwhile
        Driver driver(std::move(plan));
        driver.send(SIGSTOP);
        // The driver and its guardians live and hold the pipe; their descendants must be gone.
        const auto deadline = std::chrono::steady_clock::now() + patience;
        std::size_t left = 99;
        while (left > 2 && std::chrono::steady_clock::now() < deadline) {
            left = descendants_of(driver.pid(), all_processes()).size();
        }
        CHECK(left == 2);  // the guardian, and the one that stands by
        driver.send(SIGKILL);
        CHECK(driver.tree_ended(patience));
    }
}

TEST_CASE("the guardian that outlives its agent says so with the death notice, after the tree is empty") {
    const TemporaryDirectory directory;
    const auto file = directory.file("said");
    auto plan = plan_for({}, directory);
    plan.guardian.on_agent_death = [file](std::string_view notice) {
        const auto left = descendants_of(::getpid(), all_processes()).size();
        std::ofstream(file) << notice << ' ' << left;
    };
    Driver driver(std::move(plan));
    driver.send(SIGKILL);
    REQUIRE(driver.tree_ended(patience));
    CHECK(contents(file) == "last words 0");
}

TEST_CASE("a callback that hangs is cut off") {
    const TemporaryDirectory directory;
    auto plan = plan_for({}, directory);
    plan.guardian.on_agent_death_max = 100ms;
    plan.guardian.on_agent_death = [](std::string_view) {
        for (;;) ::pause();
    };
    Driver driver(std::move(plan));
    driver.send(SIGKILL);
    CHECK(driver.tree_ended(patience));
}

TEST_CASE("an end in order kills what is left and does not say that the agent died") {
    const TemporaryDirectory directory;
    const auto file = directory.file("said");
    GuardianConfig config;
    config.on_agent_death = [file](std::string_view) { std::ofstream(file) << "died"; };
    HostFixture fixture(config);
    fixture.host->start({act({"stubborn"})});
    REQUIRE(fixture.wait_for<WorkerStarted>());
    fixture.end();
    CHECK(descendants_of(::getpid(), all_processes()).empty());
    CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("a guardian that is stopped when its agent ends leaves nothing behind either") {
    for (const auto use : {CgroupUse::never, CgroupUse::when_delegated}) {
        GuardianConfig config;
        config.cgroup = use;
        HostFixture fixture(config);
        fixture.host->start({act({"stubborn"}, 0), act({"session", "-1"}, 1), act({"daemon", "-1"}, 2)});
        REQUIRE(fixture.wait_for<WorkerStarted>(3));
        ::kill(fixture.guardian_pid, SIGSTOP);
        const auto began = std::chrono::steady_clock::now();
        fixture.end();
        CHECK(std::chrono::steady_clock::now() - began < 30s);
        CHECK(descendants_of(::getpid(), all_processes()).empty());
        CHECK(gone(fixture.cgroup));
    }
}

TEST_CASE("a guardian that is stopped and does not kill the tree is killed, and the next one serves") {
    HostFixture fixture;
    REQUIRE(fixture.run_until([] { return guardians().size() == 2; }, patience));
    fixture.host->start({act({"stubborn"}, 0), act({"daemon", "-1"}, 1)});
    REQUIRE(fixture.wait_for<WorkerStarted>(2));
    ::kill(fixture.guardian_pid, SIGSTOP);
    fixture.host->kill_tree();
    CHECK_FALSE(fixture.wait_for<TreeEmpty>(1, 100ms));
    fixture.host->kill_guardian();
    REQUIRE(fixture.wait_for<TreeEmpty>(1, patience));
    CHECK(fixture.all<WorkerEnded>().size() == 2);
    REQUIRE(fixture.all<GuardianLost>().size() == 1);
    CHECK(fixture.all<GuardianLost>()[0].replaced);
    CHECK(describe(fixture.run(act({"exit", "3"}, 9)).end) == describe(Exited{3}));
}

TEST_CASE("kill_tree empties the tree, reports every worker once, and then says so") {
    for (const auto use : {CgroupUse::never, CgroupUse::when_delegated}) {
        GuardianConfig config;
        config.cgroup = use;
        HostFixture fixture(config);
        fixture.host->start({act({"stubborn"}, 0), act({"session", "-1"}, 1), act({"daemon", "7"}, 2)});
        REQUIRE(fixture.wait_for<WorkerStarted>(3));
        REQUIRE(fixture.wait_for<WorkerEnded>(1));
        fixture.host->kill_tree();
        REQUIRE(fixture.wait_for<TreeEmpty>(1, patience));
        CHECK(fixture.all<WorkerEnded>().size() == 3);
        CHECK(std::holds_alternative<TreeEmpty>(fixture.events.back()));
        CHECK(descendants_of(fixture.guardian_pid, all_processes()).empty());
        // And the next round starts as if nothing had been.
        CHECK(describe(fixture.run(act({"exit", "1"})).end) == describe(Exited{1}));
    }
}

TEST_CASE("a tree that takes too long to die is named, and still reported when it is empty") {
    GuardianConfig config;
    config.cgroup = CgroupUse::never;  // so that the child in its own session outlives the first blow
    config.stuck_after = 0s;
    HostFixture fixture(config);
    fixture.host->start({act({"session", "-1"})});
    REQUIRE(fixture.wait_for<WorkerStarted>());
    const auto deadline = std::chrono::steady_clock::now() + patience;
    const auto leads = [](const ProcessFacts& facts) { return facts.session == facts.pid; };
    while (std::ranges::count_if(descendants_of(fixture.guardian_pid, all_processes()), leads) < 2) {
        REQUIRE(std::chrono::steady_clock::now() < deadline);
        fixture.run_for(1ms);
    }
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeEmpty>(1, patience));
    REQUIRE(fixture.all<TreeStuck>().size() == 1);
    CHECK_FALSE(fixture.all<TreeStuck>()[0].pids.empty());
}

TEST_CASE("an unfed guardian kills, says why, and serves on") {
    GuardianConfig config;
    config.unfed_max = 5s;  // the worker starts meanwhile
    HostFixture fixture(config);
    fixture.host->feed();
    fixture.host->start({act({"session", "-1"})});
    // An agent that lives and may not feed has other words for its guardian.
    REQUIRE(fixture.run_until([&] {
        fixture.host->set_death_notice("still here");
        return !fixture.all<WorkerEnded>().empty();
    }));
    const auto event = fixture.all<WorkerEnded>()[0];
    CHECK(event.unfed);
    CHECK(describe(event.end) == describe(Signaled{SIGKILL, false}));
    fixture.host->feed();
    fixture.host->kill_tree();  // a start during the killing would be refused
    REQUIRE(fixture.wait_for<TreeEmpty>());
    CHECK(describe(fixture.run(act({"exit", "2"})).end) == describe(Exited{2}));
}

TEST_CASE("a fed guardian leaves its workers alone") {
    GuardianConfig config;
    config.unfed_max = 5s;
    // Again where this process stood still for about that long between two feeds.
    for (int left = 4;; --left) {
        HostFixture fixture(config);
        fixture.host->start({act({"pause"})});
        auto fed = std::chrono::steady_clock::now();
        const auto end = fed + 6s;
        Duration longest{};
        while (fed < end) {
            fixture.host->feed();
            fixture.run_for(30ms);
            const auto before = std::exchange(fed, std::chrono::steady_clock::now());
            longest = std::max<Duration>(longest, fed - before);
        }
        if (left > 0 && longest > 4s && !fixture.all<WorkerEnded>().empty()) continue;
        CHECK(fixture.all<WorkerEnded>().empty());
        break;
    }
}

TEST_CASE("a guardian killed -9 takes its workers with it, the agent removes what they left, and the next one serves") {
    for (const auto use : {CgroupUse::never, CgroupUse::when_delegated}) {
        GuardianConfig config;
        config.cgroup = use;
        HostFixture fixture(config);
        for (int round = 0; round < 3; ++round) {
            fixture.events.clear();
            REQUIRE(fixture.run_until([] { return guardians().size() == 2; }, patience));
            fixture.host->start({act({"stubborn"}, 0), act({"session", "-1"}, 1), act({"daemon", "-1"}, 2)});
            REQUIRE(fixture.wait_for<WorkerStarted>(3));
            const auto serving = parent_of(fixture.all<WorkerStarted>()[0].pid);
            ::kill(serving, SIGKILL);
            REQUIRE(fixture.wait_for<GuardianLost>(1, patience));
            REQUIRE(fixture.all<WorkerEnded>().size() == 3);
            for (const auto& event : fixture.all<WorkerEnded>()) CHECK(event.orphaned);
            CHECK(std::holds_alternative<GuardianLost>(fixture.events.back()));
            CHECK(fixture.all<GuardianLost>()[0].replaced);
            for (const auto& facts : descendants_of(::getpid(), all_processes())) CHECK(facts.parent == ::getpid());
            CHECK(describe(fixture.run(act({"exit", "3"}, 9)).end) == describe(Exited{3}));
            fixture.host->kill_tree();
            REQUIRE(fixture.wait_for<TreeEmpty>(1, patience));
        }
        fixture.end();
        CHECK(descendants_of(::getpid(), all_processes()).empty());
        CHECK(gone(fixture.cgroup));
    }
}

TEST_CASE(
    "a program beside the agent, which may write a checkpoint, outlives a lost guardian with what it has started") {
    HostFixture fixture;
    REQUIRE(fixture.run_until([] { return guardians().size() == 2; }, patience));
    fixture.host->start({act({"stubborn"})});
    REQUIRE(fixture.wait_for<WorkerStarted>());
    const auto beside = start_side_process({actor(), "session", "-1"}, {});
    REQUIRE(beside.has_value());
    char ready = 0;
    REQUIRE(fixture.run_until([&] { return ::read(beside->output.get(), &ready, 1) == 1; }));
    ::kill(fixture.guardian_pid, SIGKILL);
    REQUIRE(fixture.wait_for<GuardianLost>(1, patience));
    CHECK(fixture.all<GuardianLost>()[0].replaced);
    const auto started = descendants_of(beside->pid, all_processes());
    CHECK(started.size() == 1);
    ::kill(beside->pid, SIGTERM);
    int status = 0;
    CHECK(::waitpid(beside->pid, &status, 0) == beside->pid);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM));
    for (const auto& left : started) {  // it is a child of this process now
        ::kill(left.pid, SIGKILL);
        CHECK(::waitpid(left.pid, nullptr, 0) == left.pid);
    }
    // The pair must know its new reserve, to reap it.
    REQUIRE(fixture.run_until([] { return guardians().size() == 2; }, patience));
    CHECK(describe(fixture.run(act({"exit", "3"}, 9)).end) == describe(Exited{3}));
    fixture.end();
    CHECK(descendants_of(::getpid(), all_processes()).empty());
}

TEST_CASE("how workers and programs beside the agent end is known also where SIGCHLD was ignored from the start") {
    ::signal(SIGCHLD, SIG_IGN);  // inherited so by what some services start
    HostFixture fixture;
    CHECK(describe(fixture.run(act({"exit", "3"})).end) == describe(Exited{3}));
    const auto beside = start_side_process({actor(), "exit", "4"}, {});
    REQUIRE(beside.has_value());
    int status = 0;
    CHECK(::waitpid(beside->pid, &status, 0) == beside->pid);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 4));
    ::signal(SIGCHLD, SIG_DFL);
}

TEST_CASE("a kill of the tree that a dying guardian did not finish is answered after its loss") {
    HostFixture fixture;
    REQUIRE(fixture.run_until([] { return guardians().size() == 2; }, patience));
    fixture.host->start({act({"stubborn"})});
    REQUIRE(fixture.wait_for<WorkerStarted>());
    ::kill(fixture.guardian_pid, SIGSTOP);
    fixture.host->kill_tree();
    ::kill(fixture.guardian_pid, SIGKILL);
    REQUIRE(fixture.wait_for<TreeEmpty>(1, patience));
    CHECK(fixture.all<WorkerEnded>().size() == 1);
    CHECK(fixture.all<GuardianLost>().size() == 1);
}

TEST_CASE("with both guardians killed at once nothing can be started any more") {
    HostFixture fixture;
    REQUIRE(fixture.run_until([] { return guardians().size() == 2; }, patience));
    fixture.host->start({act({"session", "-1"})});
    REQUIRE(fixture.wait_for<WorkerStarted>());
    for (const pid_t pid : guardians()) ::kill(pid, SIGKILL);
    // The second one may have been given the seat before its own death was seen.
    const auto seatless = [&] {
        const auto lost = fixture.all<GuardianLost>();
        return !lost.empty() && !lost.back().replaced;
    };
    REQUIRE(fixture.run_until(seatless, patience));
    fixture.host->start({act({"exit", "0"}, 9)});
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<WorkerEnded>(2, patience));
    CHECK(std::holds_alternative<NotStarted>(fixture.all<WorkerEnded>()[1].end));
    REQUIRE(fixture.wait_for<TreeEmpty>(1, patience));
    CHECK(descendants_of(::getpid(), all_processes()).empty());
}

TEST_CASE("one that stands by and is killed is replaced") {
    HostFixture fixture;
    const auto reserve = [&] {
        const auto all = guardians();
        const auto found = std::find_if(all.begin(), all.end(), [&](pid_t pid) { return pid != fixture.guardian_pid; });
        return found == all.end() ? 0 : *found;
    };
    REQUIRE(fixture.run_until([&] { return reserve() != 0; }, patience));
    const auto first = reserve();
    ::kill(first, SIGKILL);
    CHECK(fixture.run_until([&] { return reserve() != 0 && reserve() != first; }, patience));
    CHECK(fixture.all<GuardianLost>().empty());
}

TEST_CASE("what an ended leader left in its group is told of, takes the signal and its time, and its end is told") {
    const TemporaryDirectory directory;
    const auto file = directory.file("saved");
    HostFixture fixture;
    fixture.host->start({act({"wrapper", file, "200"}, 0), act({"wrapper", file, "200"}, 1), act({"pause"}, 2)});
    REQUIRE(fixture.wait_for<WorkerStarted>(3));
    const auto grandchildren = [&] { return descendants_of(fixture.guardian_pid, all_processes()).size(); };
    REQUIRE(fixture.run_until([&] { return grandchildren() == 5; }));
    fixture.host->signal_leaders(SIGTERM);
    REQUIRE(fixture.wait_for<WorkerEnded>(3, patience));
    for (const auto& event : fixture.all<WorkerEnded>()) CHECK(event.group_left == (event.local_rank != 2));
    CHECK(contents(file).empty());  // nobody has told them yet
    fixture.host->signal_group(0, SIGTERM);
    fixture.host->signal_group(2, SIGTERM);  // nothing is there
    REQUIRE(fixture.wait_for<GroupEmpty>(1, patience));
    CHECK(fixture.all<GroupEmpty>()[0].local_rank == 0);
    CHECK(contents(file) == "saved\n");
    fixture.host->kill_tree();  // the grace is over for the other one
    REQUIRE(fixture.wait_for<TreeEmpty>(1, patience));
    CHECK(contents(file) == "saved\n");
}

TEST_CASE("hundreds of starts and kills leave no descriptor and no process") {
    HostFixture fixture;
    const auto descriptors = [](pid_t pid) {
        const auto path = std::filesystem::path("/proc") / std::to_string(pid) / "fd";
        return std::distance(std::filesystem::directory_iterator(path), {});
    };
    auto command = act({"pause"});
    command.stderr_plan.keep_tail = true;
    const auto cycle = [&](std::size_t number) {
        fixture.events.clear();
        fixture.host->start({command});
        // Every other one is killed while it is being started.
        if (number % 2 == 0) REQUIRE(fixture.wait_for<WorkerStarted>());
        fixture.host->kill_tree();
        REQUIRE(fixture.wait_for<TreeEmpty>());
        REQUIRE(fixture.all<WorkerEnded>().size() == 1);
    };
    cycle(0);
    const auto ours = descriptors(::getpid());
    const auto guardians = descriptors(fixture.guardian_pid);
    for (std::size_t i = 0; i < 250; ++i) cycle(i);
    // The pump closes a pipe when it sees its end, which may be a moment after the worker's.
    CHECK(fixture.run_until([&] { return descriptors(::getpid()) <= ours; }, patience));
    CHECK(fixture.run_until([&] { return descriptors(fixture.guardian_pid) <= guardians; }, patience));
    CHECK(descendants_of(fixture.guardian_pid, all_processes()).empty());
}

TEST_CASE("workers that are kept, and what they have started, outlive the end of the others") {
    HostFixture fixture;
    fixture.host->start({act({"pause"}, 0), act({"session", "-1"}, 1), act({"session", "-1"}, 2)});
    REQUIRE(fixture.wait_for<WorkerStarted>(3));
    const auto left = [&] { return descendants_of(fixture.guardian_pid, all_processes()).size(); };
    REQUIRE(fixture.run_until([&] { return left() == 5; }));
    fixture.host->keep({1});
    fixture.host->signal_leaders(SIGTERM);
    REQUIRE(fixture.wait_for<WorkerEnded>(2));
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeEmpty>());
    CHECK(left() == 2);
    for (const auto& event : fixture.all<WorkerEnded>()) CHECK(event.local_rank != 1);

    // Others start beside it, and a group's signal reaches it.
    fixture.host->start({act({"pause"}, 0)});
    REQUIRE(fixture.wait_for<WorkerStarted>(4));
    fixture.host->signal_group(1, SIGKILL);
    REQUIRE(fixture.wait_for<WorkerEnded>(3));
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeEmpty>(2));
    CHECK(left() == 0);
}

TEST_CASE("a tree that is being killed takes workers with it as soon as they are kept no more") {
    HostFixture fixture;
    fixture.host->start({act({"pause"}, 0), act({"pause"}, 1)});
    REQUIRE(fixture.wait_for<WorkerStarted>(2));
    fixture.host->keep({0, 1});
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeEmpty>());
    CHECK(fixture.all<WorkerEnded>().empty());
    fixture.host->keep({1});
    fixture.host->kill_tree();
    fixture.host->keep({});
    REQUIRE(fixture.wait_for<WorkerEnded>(1));
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeEmpty>(2));
    REQUIRE(fixture.wait_for<WorkerEnded>(2));
}
