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
    // The kernel tells only of the last change: longer where this process stood still until the child went on.
    bool was_stopped = false;
    for (Duration stopped = 2s; !was_stopped && stopped < 1min; stopped *= 4) {
        const auto child = start({.signal = SIGSTOP, .stopped = stopped});
        int change = next_change(child);
        was_stopped = WIFSTOPPED(change);
        if (was_stopped) change = next_change(child);
        CHECK(WIFCONTINUED(change));
        ::kill(child, SIGKILL);
        CHECK(WIFSIGNALED(next_change(child)));
    }
    CHECK(was_stopped);
    const auto killed = start({.after = 1ms, .signal = SIGKILL});
    const int status = next_change(killed);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
}
