// muster-stacks PID: prints native and Python frames of a process. An agent runs it for a worker that hangs; it can be
// run by hand. A separate program, because reading a process that is blocked in the kernel may never return. The caller
// kills it at a deadline, and the kernel releases the process that it held.
//
// Exit codes: 0; 1 if there is no such process; 2 usage.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <string_view>

#include "agent/probes/stacks/process_stacks.h"
#include "rendezvous/base/text/text.h"

int main(int argument_count, char** arguments) {
    if (argument_count == 2 && std::string_view(arguments[1]) == "--help") {
        ::fputs(
            "usage: muster-stacks PID\n"
            "Prints the native and Python frames of the main thread and of the threads of muster's runtime that are "
            "in\n"
            "collectives. The process is stopped for some milliseconds.\n",
            stdout);
        return 0;
    }
    pid_t process = 0;
    if (argument_count != 2 || !muster::parse_number(arguments[1], process) || process <= 0 || process == ::getpid()) {
        ::fputs("usage: muster-stacks PID\n", stderr);
        return 2;
    }
    if (::kill(process, 0) != 0) {
        // A note: the agent shows what it reads here, and a worker may end at any time.
        ::printf("note process %d: %m\n", process);
        return 1;
    }
    muster::agent::report_stacks(process, [](const std::string& line) {
        ::puts(line.c_str());
        ::fflush(stdout);
    });
    return 0;
}
