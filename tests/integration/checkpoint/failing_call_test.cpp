// Any one call on a checkpoint's files fails with an I/O error: what is told to be safe is safe, at most one save
// fails, and the next goes well.
#include <sys/syscall.h>

#include <cstdio>

#include "rendezvous/base/text/text.h"
#include "tests/integration/checkpoint/disk_recorder.h"
#include "tests/integration/checkpoint/may_trace.h"
#include "tests/integration/checkpoint/saver.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::test;

namespace {

constexpr std::int64_t last_step = 4;

struct Outcome {
    bool failed_one = false;
    bool save_failed = false;
    bool was_flush = false;
    std::string trouble{};
};

/// A job whose n-th call below the directory fails, and the next start.
Outcome fail_call(int n) {
    const ScratchFolder scratch;
    const SharedBoard board;
    const auto directory = scratch / "ckpt";
    Tracer tracer;
    const auto process = tracer.start_watched([&] {
        return run_saver(board, {.directory = directory, .steps = {1, 2, 3, last_step}, .goes_on = true});
    });
    Outcome outcome;
    std::string call;
    bool between = false;
    const auto ends = tracer.run([&, seen = 0](const SyscallStop& stop) mutable {
        between = (between || is_mark(stop, mark_begin)) && !is_mark(stop, mark_end);
        if (!between || stop.moment != Moment::entry) return Next::go_on;
        const auto path = DiskRecorder::path_of_call(stop);
        if (!path.starts_with(directory) || seen++ != n) return Next::go_on;
        outcome.failed_one = true;
        outcome.was_flush = stop.number == SYS_fsync;
        call = cat("system call ", stop.number, " on ", path);
        return Next::fail;
    });
    outcome.save_failed = board.counted() > 0;
    outcome.trouble = board.complaint().empty() ? trouble_of(ends.at(process)) : board.complaint();
    const auto safe = board.acknowledged();
    if (outcome.trouble.empty() && board.counted() > 1) outcome.trouble = cat(board.counted(), " saves failed");
    if (outcome.trouble.empty() && safe < last_step - (outcome.save_failed ? 1 : 0)) outcome.trouble = "stopped saving";
    if (outcome.trouble.empty())
        outcome.trouble = trouble_after({.directory = directory, .round = 1, .steps = {}}, safe);
    if (!outcome.trouble.empty()) outcome.trouble = cat(call, ", step ", safe, " was safe: ", outcome.trouble);
    return outcome;
}

}  // namespace

TEST_CASE("whichever call on a file fails, at most one save does, and what was told to be safe is safe") {
    if (!may_trace()) return;
    int calls = 0, failed_saves = 0, failed_by_flush = 0;
    for (;; ++calls) {
        const auto outcome = fail_call(calls);
        CHECK(outcome.trouble == "");
        if (!outcome.failed_one) break;
        if (outcome.save_failed) ++failed_saves;
        if (outcome.save_failed && outcome.was_flush) ++failed_by_flush;
    }
    std::printf("%d calls failed, and %d saves, %d of them by an fsync\n", calls, failed_saves, failed_by_flush);
    CHECK(failed_saves < calls);  // LATEST and what retention removes cost no checkpoint
    // Of each of three saves: the rank's file, the manifest, the draft's folder, the directory.
    CHECK(failed_by_flush == 3 * 4);
}
