// A child of a test that does not outlive it.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "tests/support/end_with_test.h"

namespace muster::test {

/// Killed and reaped at the end of its scope.
struct Child {
    explicit Child(pid_t child) : pid(child) {}
    ~Child() {
        if (pid <= 0) return;
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    const pid_t pid;
};

/// A child that waits for its end.
struct IdleChild : Child {
    IdleChild() : Child(fork_with_test()) {
        while (pid == 0) ::pause();
    }
};

}  // namespace muster::test
