// Signals that a process sends to itself by way of a child: here to children of the test.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "rendezvous/base/system/self_signals.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"

using namespace muster;

namespace {

/// The child asks for the signals and waits for them.
pid_t start(const SelfSignals& plan) {
    const auto child = test::fork_with_test();
    if (child != 0) return child;
    if (!signal_self(plan)) ::_exit(1);
    for (;;) ::pause();
}

int next_change(pid_t child) {
    int status = 0;
    return ::waitpid(child, &status, WUNTRACED | WCONTINUED) == child ? status : -1;
}

}  // namespace

TEST_CASE("a process that has itself stopped goes on, and one that has itself killed ends") {
    // Long enough that it is seen to stand still before it goes on, on a busy host too: the kernel tells only of the
    // last change.
    const auto child = start({.signal = SIGSTOP, .stopped = 6s});
    CHECK(WIFSTOPPED(next_change(child)));
    CHECK(WIFCONTINUED(next_change(child)));
    ::kill(child, SIGKILL);
    CHECK(WIFSIGNALED(next_change(child)));
    const auto killed = start({.after = 1ms, .signal = SIGKILL});
    const int status = next_change(killed);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
}
