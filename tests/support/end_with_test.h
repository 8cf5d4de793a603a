// Processes that end with the test that started them, also where the test itself is killed.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace muster::test {

/// The kernel kills this process when the thread that started it ends. Has to be called again after a change of user.
inline void end_with_test() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/// fork() whose child ends with the calling thread.
inline pid_t fork_with_test() {
    const pid_t test = ::getpid();
    const pid_t child = ::fork();
    if (child != 0) return child;
    end_with_test();
    if (::getppid() != test) ::_exit(1);
    return 0;
}

/// For a child that will exec: Catch2's handlers are kept until then, and would pass for the program's own.
inline void reset_signals() {
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
}

}  // namespace muster::test
