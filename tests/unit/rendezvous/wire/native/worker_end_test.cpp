#include "rendezvous/wire/native/worker_end.h"

#include "tests/support/catch.h"

namespace muster {

TEST_CASE("only exit code 0 is success") {
    CHECK(succeeded(Exited{0}));
    CHECK_FALSE(succeeded(Exited{1}));
    CHECK_FALSE(succeeded(Signaled{9, false}));
    CHECK_FALSE(succeeded(NotStarted{0, "execvpe"}));
}

TEST_CASE("an end is described in words that a person knows") {
    CHECK(describe(WorkerEnd(Exited{7})) == "exit code 7");
    CHECK(describe(WorkerEnd(Signaled{9, false})) == "signal 9 (SIGKILL)");
    CHECK(describe(WorkerEnd(Signaled{11, true})) == "signal 11 (SIGSEGV), core dumped");
    CHECK(describe(WorkerEnd(Signaled{64, false})) == "signal 64");
    CHECK(describe(WorkerEnd(NotStarted{2, "execvpe"})) == "not started: execvpe: No such file or directory");
    CHECK(signal_name(15) == "SIGTERM");
    CHECK(signal_name(0) == "signal 0");
    CHECK(signal_name(-1) == "signal -1");
}

}  // namespace muster
