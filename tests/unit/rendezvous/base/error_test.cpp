#include "rendezvous/base/error.h"

#include <cerrno>

#include "rendezvous/base/kernel/process_limit.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"

using namespace muster;

TEST_CASE("an errno keeps its meaning and its text") {
    const Error error = error_from_errno(EADDRINUSE, "bind [::]:29400");
    CHECK(error.code == Errc::already_exists);
    CHECK(error.context == "bind [::]:29400: Address already in use");
}

TEST_CASE("context is put in front") {
    CHECK(describe(with_context(Error{Errc::timed_out, "no answer within 5 s"}, "join job 7")) ==
          "timed_out: join job 7: no answer within 5 s");
}

TEST_CASE("a file that may not grow is told with the limit and what to do") {
    const test::FileSizeLimit limit(4096);
    const Error error = error_from_errno(EFBIG, "write the report r.json");
    CHECK(error.code == Errc::limit_exceeded);
    CHECK(error.context ==
          "write the report r.json: File too large: this process may write files of at most 4096 bytes; raise ulimit "
          "-f (RLIMIT_FSIZE)");
}

TEST_CASE("the limit on processes that is reached is named with its value") {
    ProcessLimits limits{.groups = {{"/sys/fs/cgroup/a/b", 100, 20}, {"/sys/fs/cgroup/a", 40, 40}},
                         .user_max = 500,
                         .threads_max = 7000,
                         .pid_max = 32768};
    CHECK(describe_reached_limit(limits) == "pids.max = 40 of the control group /sys/fs/cgroup/a (it holds 40)");
    limits.groups[1].count = 39;
    CHECK(describe_reached_limit(limits) == "RLIMIT_NPROC = 500 (ulimit -u) of this user");
    limits.user_max.reset();  // root
    CHECK(describe_reached_limit(limits) == "pids.max = 40 of the control group /sys/fs/cgroup/a (it holds 39)");
    limits.groups.clear();
    CHECK(describe_reached_limit(limits) == "kernel.threads-max = 7000 or kernel.pid_max = 32768");
    CHECK(find_process_limits().pid_max > 0);
}
