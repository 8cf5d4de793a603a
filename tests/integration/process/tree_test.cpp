// Nothing is left behind: whatever dies, in whatever way, the tree below the agent is gone within two seconds.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/process/process_tree.h"
#include "agent/process/worker_cgroup.h"
#include "tests/integration/process/driver.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

constexpr uid_t nobody = 65534;

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
    plan.user = setting.user;
    plan.workers = hard_workers();
    use_copy(plan.workers, directory);
    return plan;
}

bool gone(const std::string& cgroup) {
    return cgroup.empty() || !std::filesystem::exists(cgroup);
}

}  // namespace

TEST_CASE("an agent killed -9 leaves no process within 2 s") {
    const TemporaryDirectory directory;
    for (const auto& setting : settings()) {
        INFO(setting.name);
        Driver driver(plan_for(setting, directory));
        CHECK(driver.cgroup().empty() == (setting.name != "own user, cgroup"));
        driver.send(SIGKILL);
        CHECK(driver.tree_ended(2s));
        CHECK(gone(driver.cgroup()));
    }
}

TEST_CASE("a stopped agent does not keep its workers: unfed, they are gone within 2 s") {
    const TemporaryDirectory directory;
    for (const auto& setting : settings()) {
        INFO(setting.name);
        auto plan = plan_for(setting, directory);
        plan.guardian.unfed_max = 300ms;
        Driver driver(std::move(plan));
        driver.send(SIGSTOP);
        // The driver and its guardian live and hold the pipe; their descendants must be gone.
        const auto deadline = std::chrono::steady_clock::now() + 2s;
        std::size_t left = 99;
        while (left > 1 && std::chrono::steady_clock::now() < deadline) {
            left = descendants_of(driver.pid(), all_processes()).size();
        }
        CHECK(left == 1);  // the guardian
        driver.send(SIGKILL);
        CHECK(driver.tree_ended(2s));
    }
}

TEST_CASE("the guardian that outlives its agent says so with the testament, after the tree is empty") {
    const TemporaryDirectory directory;
    const auto file = directory.file("said");
    auto plan = plan_for({}, directory);
    plan.guardian.on_agent_death = [file](std::string_view testament) {
        const auto left = descendants_of(::getpid(), all_processes()).size();
        std::ofstream(file) << testament << ' ' << left;
    };
    Driver driver(std::move(plan));
    driver.send(SIGKILL);
    REQUIRE(driver.tree_ended(2s));
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
    CHECK(driver.tree_ended(2s));
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

TEST_CASE("kill_tree empties the tree, reports every worker once, and then says so") {
    for (const auto use : {CgroupUse::never, CgroupUse::when_delegated}) {
        GuardianConfig config;
        config.cgroup = use;
        HostFixture fixture(config);
        fixture.host->start({act({"stubborn"}, 0), act({"session", "-1"}, 1), act({"daemon", "7"}, 2)});
        REQUIRE(fixture.wait_for<WorkerStarted>(3));
        REQUIRE(fixture.wait_for<WorkerEnded>(1));
        fixture.host->kill_tree();
        REQUIRE(fixture.wait_for<TreeEmpty>(1, 2s));
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
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (descendants_of(fixture.guardian_pid, all_processes()).size() < 2) {
        REQUIRE(std::chrono::steady_clock::now() < deadline);
        fixture.run_for(1ms);
    }
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeEmpty>(1, 2s));
    REQUIRE(fixture.all<TreeStuck>().size() == 1);
    CHECK_FALSE(fixture.all<TreeStuck>()[0].pids.empty());
}

TEST_CASE("an unfed guardian kills, says why, and serves on") {
    GuardianConfig config;
    config.unfed_max = 100ms;
    HostFixture fixture(config);
    fixture.host->feed();
    fixture.host->start({act({"session", "-1"})});
    REQUIRE(fixture.wait_for<WorkerEnded>(1, 2s));
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
    config.unfed_max = 200ms;
    HostFixture fixture(config);
    fixture.host->start({act({"pause"})});
    for (int i = 0; i < 20; ++i) {
        fixture.host->feed();
        fixture.run_for(30ms);
    }
    CHECK(fixture.all<WorkerEnded>().empty());
}

TEST_CASE("a guardian killed -9 takes its workers with it, and the agent removes what they left") {
    for (const auto use : {CgroupUse::never, CgroupUse::when_delegated}) {
        GuardianConfig config;
        config.cgroup = use;
        HostFixture fixture(config);
        fixture.host->start({act({"stubborn"}, 0), act({"session", "-1"}, 1), act({"daemon", "-1"}, 2)});
        REQUIRE(fixture.wait_for<WorkerStarted>(3));
        ::kill(fixture.guardian_pid, SIGKILL);
        REQUIRE(fixture.wait_for<GuardianLost>(1, 2s));
        CHECK(fixture.all<WorkerEnded>().size() == 3);
        CHECK(std::holds_alternative<GuardianLost>(fixture.events.back()));
        CHECK(descendants_of(::getpid(), all_processes()).empty());
        CHECK(gone(fixture.cgroup));
        fixture.host->start({act({"exit", "0"}, 9)});
        fixture.host->kill_tree();
        REQUIRE(fixture.wait_for<WorkerEnded>(4, 2s));
        CHECK(std::holds_alternative<NotStarted>(fixture.all<WorkerEnded>()[3].end));
        REQUIRE(fixture.wait_for<TreeEmpty>(1, 2s));
    }
}

TEST_CASE("a thousand starts and kills leave no descriptor and no process") {
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
    for (std::size_t i = 0; i < 1000; ++i) cycle(i);
    // The pump closes a pipe when it sees its end, which may be a moment after the worker's.
    CHECK(fixture.run_until([&] { return descriptors(::getpid()) <= ours; }, 2s));
    CHECK(descriptors(fixture.guardian_pid) == guardians);
    CHECK(descendants_of(fixture.guardian_pid, all_processes()).empty());
}
