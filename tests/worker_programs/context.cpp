// A worker that uses the runtime, for tests: says who it is and what came of a few collectives.
//
//   context            all_reduce its rank + 1, print one line, exit 0
//   context outlive    ranks 0 and 1 make a group; rank 0 waits in it for rank 1, which never comes; rank 2 exits 3.
//                      Rank 0 prints the failure and leaves with 0.
//   context absent     rank 1 stays away from a barrier; the others print the failure after 8 s and exit 3
//   context fail       a barrier, then exit 3
//   context reduce     all_reduces until one fails; prints when that was, on the monotonic clock, and why. Exit 3
//   context split      rank 1 is killed in a split, before it has told the store who it is; the others print when that
//                      failed, on the monotonic clock, and why. Exit 3
//   context meet       gives the others 8 s to come, and prints who did not
//   context driver     opens a context, closes it, and runs "context" as its child
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include "muster/context.h"

namespace {

int fail(const std::string& what) {
    std::fprintf(stderr, "context: %s\n", what.c_str());
    return 1;
}

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Until that process has ended.
void await_end(int pid) {
    const int process = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    pollfd end{process, POLLIN, 0};
    if (process >= 0) ::poll(&end, 1, -1);
}

int outlive(muster::Context& context) {
    ::signal(SIGTERM, SIG_IGN);  // what is looked at is the message, not the signal that follows it
    int pids[3] = {};
    const int own = ::getpid();
    const auto told =
        context.world().run(muster::all_gather({&own, 1, muster::DataType::i32}, {pids, 3, muster::DataType::i32}));
    if (!told) return fail(told.error().context);
    auto pair = context.world().split(context.rank() < 2 ? 0 : -1, 0);
    if (!pair) return fail(pair.error().context);
    // Rank 2 goes when the others have their pair: its end in their split would be that one's.
    const auto all_have = context.world().run(muster::barrier());
    if (context.rank() == 2) return all_have ? 3 : 1;
    if (context.rank() == 1) {
        await_end(pids[0]);
        return 0;
    }
    const auto done = (*pair)->run(muster::barrier());
    std::printf("%s\n", done ? "no failure" : done.error().context.c_str());
    return 0;
}

int absent(muster::Context& context) {
    if (context.rank() == 1) {
        ::pause();
        return 0;
    }
    const auto done = context.world().run(muster::barrier());
    std::printf("%s\n", done ? "no failure" : done.error().context.c_str());
    return 3;
}

int reduce_until_failure(muster::Context& context) {
    ::signal(SIGTERM, SIG_IGN);  // what is looked at is the message, not the signal that follows it
    static float values[1 << 18];
    const auto reduced = muster::all_reduce({values, std::size(values), muster::DataType::f32}, muster::ReduceOp::sum);
    auto done = context.world().run(reduced);
    std::printf("rank=%d pid=%d\n", context.rank(), ::getpid());
    std::fflush(stdout);
    while (done) done = context.world().run(reduced);
    std::printf("failed at %.6f: %s\n", seconds_now(), done.error().context.c_str());
    return 3;
}

int split_until_death(muster::Context& context) {
    ::signal(SIGTERM, SIG_IGN);  // what is looked at is the failure, not the signal that follows it
    if (context.rank() == 1) {
        // As a split begins: all ranks' colors and keys.
        const int own[2] = {0, 0};
        int all[64] = {};
        const auto count = static_cast<std::size_t>(2 * context.world_size());
        (void)context.world().run(
            muster::all_gather({own, 2, muster::DataType::i32}, {all, count, muster::DataType::i32}));
        std::printf("killed at %.6f\n", seconds_now());
        std::fflush(stdout);
        ::raise(SIGKILL);
    }
    const auto part = context.world().split(0, 0);
    std::printf("failed at %.6f: %s\n", seconds_now(), part ? "no failure" : part.error().context.c_str());
    return 3;
}

int run_as_child(char* program) {
    char* const arguments[] = {program, nullptr};
    pid_t child = 0;
    if (::posix_spawn(&child, program, nullptr, nullptr, arguments, environ) != 0) return fail("no child");
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    muster::ContextOptions options;
    if (mode == "absent") options.operation_timeout = std::chrono::seconds(8);
    if (mode == "meet") options.meeting_timeout = std::chrono::seconds(8);
    if (mode == "meet" || mode == "reduce") ::signal(SIGTERM, SIG_IGN);  // each rank is to say what it saw
    auto context = muster::Context::from_environment(options);
    if (!context) return fail(context.error().context);
    if (mode == "driver") {
        { const auto closed = std::move(*context); }
        return run_as_child(argv[0]);
    }
    if (mode == "outlive") return outlive(*context);
    if (mode == "absent") return absent(*context);
    if (mode == "reduce") return reduce_until_failure(*context);
    if (mode == "split") return split_until_death(*context);
    if (mode == "fail") return context->world().run(muster::barrier()) ? 3 : 1;
    float value = static_cast<float>(context->rank() + 1);
    const auto done =
        context->world().run(muster::all_reduce({&value, 1, muster::DataType::f32}, muster::ReduceOp::sum));
    if (!done) return fail(done.error().context);
    std::printf("rank=%d world=%d local=%d round=%lld device=%d sum=%g transport=%s\n", context->rank(),
                context->world_size(), context->local_rank(), static_cast<long long>(context->round()),
                context->device(), static_cast<double>(value), std::string(context->world().transport()).c_str());
    return 0;
}
