// A worker that only says when it was exec'd: appends one line to the file that MUSTER_STAMP_FILE names, then waits to
// be told to go, or exits at once when MUSTER_STAMP_EXIT holds an exit code. The benchmarks link it statically, so that
// it measures the launcher and not the loader.
//
// Line: "<CLOCK_MONOTONIC in ns> <pid> <RANK> <LOCAL_RANK> <WORLD_SIZE> <TORCHELASTIC_RESTART_COUNT>".
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char* variable(const char* name) {
    const char* value = getenv(name);
    return value != NULL ? value : "-";
}

int main(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const char* path = getenv("MUSTER_STAMP_FILE");
    if (path == NULL) {
        fputs("stamp: MUSTER_STAMP_FILE is not set\n", stderr);
        return 2;
    }
    char line[256];
    const int length = snprintf(line, sizeof line, "%lld %d %s %s %s %s\n",
                                (long long)now.tv_sec * 1000000000 + now.tv_nsec, (int)getpid(), variable("RANK"),
                                variable("LOCAL_RANK"), variable("WORLD_SIZE"), variable("TORCHELASTIC_RESTART_COUNT"));
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || length <= 0 || write(file, line, (size_t)length) != length) {  // one write: lines never mix
        perror("stamp: write");
        return 2;
    }
    const char* code = getenv("MUSTER_STAMP_EXIT");
    if (code != NULL) return atoi(code);
    for (;;) pause();
}
