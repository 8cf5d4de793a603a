// How workers start and end, seen through a real guardian.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "tests/integration/process/driver.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

WorkerCommand run_program(const std::string& program, std::vector<std::string> environment = {"PATH=/usr/bin:/bin"}) {
    auto command = act({});
    command.argv = {program, "exit", "3"};
    command.environment = std::move(environment);
    return command;
}

std::string script(const TemporaryDirectory& directory, const std::string& first_line, mode_t mode) {
    const auto path = directory.file("a script");
    std::ofstream(path) << first_line << "\nexit 3\n";
    ::chmod(path.c_str(), mode);
    return path;
}

std::string line_of(const WorkerCommand& base, HostFixture& fixture, const TemporaryDirectory& directory) {
    auto command = base;
    command.stdout_plan.file = directory.file("out");
    fixture.run(command);
    return contents(command.stdout_plan.file);
}

}  // namespace

TEST_CASE("every exit code arrives as it was") {
    HostFixture fixture;
    std::vector<WorkerCommand> commands;
    for (std::uint32_t code = 0; code < 256; ++code) commands.push_back(act({"exit", std::to_string(code)}, code));
    fixture.host->start(std::move(commands));
    REQUIRE(fixture.wait_for<WorkerEnded>(256, 60s));
    std::set<std::uint32_t> seen;
    for (const auto& event : fixture.all<WorkerEnded>()) {
        CHECK(describe(event.end) == describe(Exited{static_cast<std::int32_t>(event.local_rank)}));
        seen.insert(event.local_rank);
    }
    CHECK(seen.size() == 256);
    CHECK(fixture.all<WorkerStarted>().size() == 256);
}

TEST_CASE("a signal that ended a worker arrives with its number") {
    HostFixture fixture;
    for (const int signal : {SIGTERM, SIGKILL, SIGSEGV, SIGABRT, SIGUSR1}) {
        const auto event = fixture.run(act({"raise", std::to_string(signal)}));
        const auto* end = std::get_if<Signaled>(&event.end);
        REQUIRE(end != nullptr);
        CHECK(end->signal == signal);
        CHECK_FALSE(event.unfed);
    }
}

TEST_CASE("a program that is not there, may not run, or lacks its interpreter is told apart") {
    HostFixture fixture;
    const TemporaryDirectory directory;
    const auto failure = [&](const std::string& program) {
        const auto event = fixture.run(run_program(program));
        CHECK(event.pid == 0);
        const auto* end = std::get_if<NotStarted>(&event.end);
        return end != nullptr ? *end : NotStarted{};
    };
    CHECK(failure("/does/not/exist") == NotStarted{ENOENT, "execve"});
    CHECK(failure("muster-no-such-program") == NotStarted{ENOENT, "execvpe"});
    CHECK(failure(script(directory, "#!/bin/sh", 0644)) == NotStarted{EACCES, "execve"});
    const auto lost = script(directory, "#!/no/such/interpreter", 0755);
    CHECK(failure(lost) == NotStarted{ENOENT, "interpreter of " + lost});
    CHECK(failure(script(directory, "no format at all", 0755)) == NotStarted{ENOEXEC, "execve"});
    CHECK(fixture.all<WorkerStarted>().empty());
}

TEST_CASE("a program without a slash is searched in the worker's own PATH, blanks in it included") {
    HostFixture fixture;
    const TemporaryDirectory directory;
    const auto path = script(directory, "#!/bin/sh", 0755);
    const auto folder = path.substr(0, path.rfind('/'));
    CHECK(describe(fixture.run(run_program("a script", {"PATH=/nowhere:" + folder})).end) == describe(Exited{3}));
    CHECK(describe(fixture.run(run_program("a script")).end) == describe(NotStarted{ENOENT, "execvpe"}));
}

TEST_CASE("a worker for which the system has no process has not started, and the reason is told") {
    Pipe said;
    const pid_t child = ::fork();
    if (child == 0) {
        become(nobody);  // root has no limit of processes
        HostFixture fixture;
        const rlimit none{.rlim_cur = 0, .rlim_max = 0};
        ::prlimit(fixture.guardian_pid, RLIMIT_NPROC, &none, nullptr);
        const auto event = fixture.run(act({"exit", "0"}));
        const auto words = describe(event.end) + (event.pid == 0 ? "" : ", but it has a pid");
        ::_exit(::write(said.write_end.get(), words.data(), words.size()) > 0 ? 0 : 1);
    }
    CHECK(said.read_to_end(60s) ==
          describe(NotStarted{EAGAIN, "fork beyond RLIMIT_NPROC = 0 (ulimit -u) of this user"}));
    ::waitpid(child, nullptr, 0);
}

TEST_CASE("an argument with a NUL byte and an empty command are refused by name") {
    HostFixture fixture;
    auto command = act({"exit", std::string("0\0", 2)});
    CHECK(std::get<NotStarted>(fixture.run(command).end).error_number == E2BIG);
    command.argv.clear();
    CHECK(std::get<NotStarted>(fixture.run(command).end).error_number == E2BIG);
}

TEST_CASE("a standby process whose command cannot be sent is not waited for") {
    HostFixture fixture;
    fixture.host->keep_standbys({.count_max = 1, .imports = std::string(1, '\0')});
    bool is_over = false;
    fixture.host->expect({act({"pause"})}, [&] { is_over = true; });
    CHECK(fixture.run_until([&] { return is_over; }, standby_import_max / 2));
}

TEST_CASE("an environment larger than a datagram arrives whole") {
    HostFixture fixture;
    auto command = act({"exit", "5"});
    for (int i = 0; i < 10; ++i)
        command.environment.push_back("LONG" + std::to_string(i) + "=" + std::string(100'000, 'x'));
    CHECK(describe(fixture.run(command).end) == describe(Exited{5}));
    command.environment.push_back("TOO_LONG=" + std::string(1 << 20, 'x'));  // the kernel's limit for one string
    CHECK(describe(fixture.run(command).end) == describe(NotStarted{E2BIG, "execve"}));
}

TEST_CASE("a worker leads a session of its own, with clean signals and no descriptors of ours") {
    HostFixture fixture;
    const TemporaryDirectory directory;
    CHECK(line_of(act({"facts"}), fixture, directory) == "leader 1 group 1 blocked 0 ignored 0 descriptors 3\n");
}

TEST_CASE("a worker that is to ignore a signal starts so, ends not by it, and by no other signal less") {
    HostFixture fixture;
    const TemporaryDirectory directory;
    auto deaf = act({"facts"});
    deaf.ignored_signal = SIGUSR1;
    CHECK(line_of(deaf, fixture, directory) == "leader 1 group 1 blocked 0 ignored 1 descriptors 3\n");
    auto waits = act({"pause"}, 1);
    waits.ignored_signal = SIGUSR1;
    fixture.host->start({waits});
    fixture.host->signal_leaders(SIGUSR1);
    fixture.host->signal_leaders(SIGUSR2);
    REQUIRE(fixture.wait_for<WorkerEnded>(2));
    CHECK(describe(fixture.all<WorkerEnded>()[1].end) == describe(Signaled{SIGUSR2, false}));
}

TEST_CASE("a signal goes to the leaders that have not ended") {
    HostFixture fixture;
    fixture.host->start({act({"exit", "0"}, 0), act({"pause"}, 2)});
    REQUIRE(fixture.wait_for<WorkerEnded>());
    fixture.host->signal_leaders(SIGTERM);
    REQUIRE(fixture.wait_for<WorkerEnded>(2));
    CHECK(describe(fixture.all<WorkerEnded>()[1].end) == describe(Signaled{SIGTERM, false}));
}

TEST_CASE("kill_tree on nothing answers at once, and a round may follow it") {
    HostFixture fixture;
    fixture.host->kill_tree();
    REQUIRE(fixture.wait_for<TreeEmpty>());
    CHECK(describe(fixture.run(act({"exit", "0"})).end) == describe(Exited{0}));
}
