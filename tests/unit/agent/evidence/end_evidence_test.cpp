#include "agent/evidence/end_evidence.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

pid_t start_pausing() {
    const auto pid = test::fork_with_test();
    if (pid == 0)
        for (;;) ::pause();
    return pid;
}

/// A host whose counter of out-of-memory kills and whose kernel log say what a test wants.
struct CountingHost {
    explicit CountingHost(const test::ScratchFolder& folder) : counter(folder / "memory.events") {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        log = FileDescriptor(ends[0]);
        count(3);
        FoundMemoryGroup group;
        group.group.path = folder.string();
        group.oom_file = counter;
        evidence.emplace(group, FileDescriptor(ends[1]));
        evidence->begin_round();
    }
    void count(int kills) const { std::ofstream(counter) << "oom 9\noom_kill " << kills << "\n"; }
    void tell(int pid) const {
        const auto record = cat("3,1,1,-;Memory cgroup out of memory: Killed process ", pid, " (x) anon-rss:4kB\n");
        REQUIRE(::send(log.get(), record.data(), record.size(), 0) > 0);
    }
    CauseKind killed(int pid, Killer killer = Killer::unknown) {
        WorkerEnded event;
        event.pid = pid;
        event.end = Signaled{SIGKILL, false};
        return evidence->cause_of(event, "", "gpu01", killer).kind;
    }
    std::string counter;
    FileDescriptor log;
    std::optional<EndEvidence> evidence;
};

WorkerEnded ended(WorkerEnd end, std::string stderr_tail = {}) {
    WorkerEnded event;
    event.pid = 1 << 30;  // no process has such a number
    event.end = std::move(end);
    event.stderr_tail = std::move(stderr_tail);
    return event;
}

}  // namespace

TEST_CASE("processes that do not go are told with name, state and, where it is known, where they sleep") {
    const auto pid = start_pausing();
    const auto told = EndEvidence::describe_unkillable({pid});
    CHECK(told.starts_with(cat("process ", pid, " (agent_driver_te, ")));
    CHECK(told.ends_with(")"));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    CHECK(EndEvidence::describe_unkillable({pid}) == cat("process ", pid));  // gone meanwhile
    CHECK(EndEvidence::describe_unkillable(std::vector<std::int32_t>(10, pid)).ends_with(" and 2 more"));
}

TEST_CASE("evidence is gathered without waiting, and claims nothing that it has not seen") {
    EndEvidence evidence;
    evidence.begin_round();
    CHECK(evidence.cause_of(ended(Exited{1}), "ValueError: x", "gpu01") == FailureCause{});
    CHECK(evidence.cause_of(ended(Exited{1}, "OSError: No space left on device"), "", "gpu01").kind ==
          CauseKind::disk_full);
    const auto killed = evidence.cause_of(ended(Signaled{SIGKILL, false}), "", "gpu01").kind;
    CHECK((killed == CauseKind::killed_from_outside || killed == CauseKind::unknown));
}

TEST_CASE("a kill that is counted explains one end, and none where the kernel's log gives it to another process") {
    const test::ScratchFolder folder;
    CountingHost host(folder);
    host.count(4);
    CHECK(host.killed(41) == CauseKind::out_of_memory);
    CHECK(host.killed(42) == CauseKind::killed_from_outside);
    host.count(5);
    host.tell(99);
    CHECK(host.killed(43) == CauseKind::killed_from_outside);
    host.count(7);
    host.tell(44);
    CHECK(host.killed(44) == CauseKind::out_of_memory);
    CHECK(host.killed(45) == CauseKind::out_of_memory);  // the log did not say whose the other one was
    CHECK(host.killed(46) == CauseKind::killed_from_outside);
    host.count(8);
    CHECK(host.killed(47, Killer::muster) == CauseKind::killed_from_outside);
    CHECK(host.killed(48) == CauseKind::out_of_memory);  // the same kill, which was not that one's
}

TEST_CASE("what the kernel has told of others since the round began does not hide what it tells last") {
    const test::ScratchFolder folder;
    CountingHost host(folder);
    for (int other = 1001; other <= 2001; ++other) {  // one by one: a socket's queue is short
        host.tell(other);
        host.evidence->look(std::chrono::steady_clock::now());
    }
    host.tell(41);
    CHECK(host.killed(41) == CauseKind::out_of_memory);
    CHECK(host.killed(42) == CauseKind::killed_from_outside);
}

TEST_CASE("a kill of hours ago explains no end") {
    const test::ScratchFolder folder;
    CountingHost host(folder);
    host.count(4);
    host.evidence->look(std::chrono::steady_clock::now() - 2h);
    CHECK(host.killed(41) == CauseKind::killed_from_outside);
    host.count(5);
    CHECK(host.killed(42) == CauseKind::out_of_memory);
}

TEST_CASE("what a script's first line names is told when it is not there") {
    const test::ScratchFolder folder;
    const auto script = folder / "train";
    std::ofstream(script) << "#! /no/such/python9 -u\nprint()\n";
    EndEvidence evidence;
    const auto cause = evidence.cause_of(ended(NotStarted{2, cat("interpreter of ", script)}), "", "gpu01");
    CHECK(cause.kind == CauseKind::missing_interpreter);
    CHECK(cause.text.find("needs the interpreter /no/such/python9, which was not found") != std::string::npos);
}

TEST_CASE("a core file from before the round is another worker's") {
    const test::ScratchFolder folder;
    const std::time_t now = std::time(nullptr);
    const auto core = [&](const std::string& name, std::time_t at) {
        std::ofstream(folder / name) << "core";
        const timespec times[] = {{at, 0}, {at, 0}};
        REQUIRE(::utimensat(AT_FDCWD, (folder / name).c_str(), times, 0) == 0);
    };
    const auto pattern = folder / "core.*";
    core("core.old", now - 3600);
    CHECK(EndEvidence::newest_core(pattern, now) == cat("written to ", pattern));
    CHECK(EndEvidence::newest_core(pattern, now - 7200) == folder / "core.old");
    core("core.new", now + 1);
    core("core.between", now);
    CHECK(EndEvidence::newest_core(pattern, now) == folder / "core.new");
}
