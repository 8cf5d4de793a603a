#include "agent/end_evidence.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

pid_t start_pausing() {
    const auto pid = ::fork();
    if (pid == 0)
        for (;;) ::pause();
    return pid;
}

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
    const auto told = EndEvidence::describe_stuck({pid});
    CHECK(told.starts_with(cat("process ", pid, " (agent_driver_te, ")));
    CHECK(told.ends_with(")"));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    CHECK(EndEvidence::describe_stuck({pid}) == cat("process ", pid));  // gone meanwhile
    CHECK(EndEvidence::describe_stuck(std::vector<std::int32_t>(10, pid)).ends_with(" and 2 more"));
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

TEST_CASE("what a script's first line names is told when it is not there") {
    const test::ScratchFolder folder;
    const auto script = folder / "train";
    std::ofstream(script) << "#! /no/such/python9 -u\nprint()\n";
    EndEvidence evidence;
    const auto cause = evidence.cause_of(ended(NotStarted{2, cat("interpreter of ", script)}), "", "gpu01");
    CHECK(cause.kind == CauseKind::missing_interpreter);
    CHECK(cause.text.find("/no/such/python9, which is not there") != std::string::npos);
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
