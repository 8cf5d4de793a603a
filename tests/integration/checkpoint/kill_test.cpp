// A rank is killed before every system call of its saves, which is behind the one before: the next start finds a whole
// checkpoint, and no older one than the last that was told to be safe.
//
// MUSTER_CRASH_STRIDE=K takes every K-th call only.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/checkpoint/may_trace.h"
#include "tests/integration/checkpoint/saver.h"
#include "tests/integration/checkpoint/tracer.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "worker_runtime/checkpoint/files/persist.h"
#include "worker_runtime/checkpoint/format/rank_file.h"

using namespace muster;
using namespace muster::test;

namespace {

constexpr int shards = 2;  // processes that share the points among them

int stride() {
    const char* const given = std::getenv("MUSTER_CRASH_STRIDE");
    return given != nullptr ? std::max(1, std::atoi(given)) : 1;
}

/// Counts the calls between the marks, of all threads, and kills at one of them.
class KillAt {
  public:
    explicit KillAt(int at) : at_(at) {}

    Next operator()(const SyscallStop& stop) {
        if (is_mark(stop, mark_begin) && stop.moment == Moment::exit) between_ = true;
        if (is_mark(stop, mark_end) && stop.moment == Moment::exit) between_ = false;
        if (!between_ || stop.moment != Moment::entry || is_mark(stop, mark_begin)) return Next::go_on;
        if (seen_++ != at_) return Next::go_on;
        hit_ = true;
        call_ = stop.number;
        return Next::kill_all;
    }
    [[nodiscard]] bool hit() const { return hit_; }
    [[nodiscard]] std::uint64_t call() const { return call_; }

  private:
    int at_, seen_ = 0;
    bool between_ = false, hit_ = false;
    std::uint64_t call_ = 0;
};

struct Story {
    int world = 1, victim = 0;
    std::function<int(const SharedBoard&, const SaverJob&)> act = run_saver;
    /// What happens in the directory beforehand, once for all points; gives the step that is safe by then.
    std::function<std::int64_t(const std::string& directory)> before = [](const auto&) { return 0; };
};

struct Outcome {
    bool hit = false;
    std::string trouble{};
};

/// One run that is ended at stop `at`, and the next start. `safe` is the step that was safe beforehand.
Outcome run_once(const Story& story, const std::string& directory, std::int64_t safe, int at) {
    const SharedBoard board;
    KillAt watcher(at);
    board.acknowledge(safe);
    Tracer tracer;
    std::map<pid_t, int> ends;
    for (int rank = 0; rank < story.world; ++rank) {
        const SaverJob job{.directory = directory, .rank = rank, .world = story.world, .round = 1, .steps = {1, 2, 3}};
        const auto body = [&board, &story, job] { return story.act(board, job); };
        rank == story.victim ? tracer.start_watched(body) : tracer.start(body);
    }
    ends = tracer.run(std::ref(watcher));
    Outcome outcome{.hit = watcher.hit()};
    if (!watcher.hit()) {
        outcome.trouble = board.complaint();
        for (const auto& [process, status] : ends) {
            if (outcome.trouble.empty()) outcome.trouble = trouble_of(status);
        }
        if (!outcome.trouble.empty()) outcome.trouble = cat("nobody was killed, and yet: ", outcome.trouble);
    }
    if (outcome.trouble.empty()) {
        outcome.trouble = trouble_after({.directory = directory, .round = 2, .steps = {}}, board.acknowledged());
    }
    if (!outcome.trouble.empty()) {
        outcome.trouble = cat("killed at stop ", at, " (system call ", watcher.call(), "), step ", board.acknowledged(),
                              " was safe: ", outcome.trouble);
    }
    return outcome;
}

/// Every stride-th point of a story until one is beyond the end of it; gives the first complaint.
std::string kill_everywhere(const Story& story) {
    const SharedBoard board;
    Tracer processes;
    for (int shard = 0; shard < shards; ++shard) {
        processes.start([&, shard] {
            const ScratchFolder first;
            const auto safe = story.before(first / "job/ckpt");
            for (int at = shard * stride();; at += shards * stride()) {
                const ScratchFolder scratch;
                if (std::filesystem::exists(first / "job"))
                    std::filesystem::copy(first / "job", scratch / "job", std::filesystem::copy_options::recursive);
                const auto outcome = run_once(story, scratch / "job/ckpt", safe, at);
                if (!outcome.trouble.empty()) board.print_error(outcome.trouble);
                if (!outcome.trouble.empty() || !outcome.hit) return 0;
                board.count();
            }
        });
    }
    const auto ends = processes.run([](const SyscallStop&) { return Next::go_on; }, 280s);
    std::string trouble = board.complaint();
    for (const auto& [process, status] : ends) {
        if (trouble.empty()) trouble = trouble_of(status);
    }
    std::printf("killed %d times, rank %d of %d\n", board.counted(), story.victim, story.world);
    return board.counted() == 0 && trouble.empty() ? "nobody was killed" : trouble;
}

/// Step 1 is saved, and step 2 lacks nothing but its manifest and its name.
std::int64_t leave_a_draft(const std::string& directory) {
    const SharedBoard board;
    Tracer processes;
    processes.start([&] { return run_saver(board, {.directory = directory, .steps = {1, 2}, .keep_last = 2}); });
    processes.run([](const SyscallStop&) { return Next::go_on; });
    const auto draft = directory + "/step_00000002.tmp-0-feed";
    std::filesystem::rename(directory + "/step_00000002", draft);
    std::filesystem::remove(draft + "/manifest.json");
    return 2;
}

/// Step 1 is saved; what ranks had in memory of step 2 lies beside the directory, in files named by their sizes.
std::int64_t leave_copies(const std::string& directory) {
    const SharedBoard board;
    Tracer processes;
    for (int rank = 0; rank < 2; ++rank) {
        const SaverJob job{.directory = directory, .rank = rank, .world = 2, .steps = {1, 2}, .keep_last = 2};
        processes.start([&board, job] { return run_saver(board, job); });
    }
    processes.run([](const SyscallStop&) { return Next::go_on; });
    const std::filesystem::path folder(directory + "/step_00000002"), copies(directory + ".copies");
    std::filesystem::create_directory(copies);
    for (int rank = 0; rank < 2; ++rank) {
        const auto file = folder / runtime::rank_file_name(rank);
        const auto bytes = std::filesystem::file_size(file);
        std::filesystem::resize_file(file, runtime::in_whole_blocks(bytes));
        std::filesystem::rename(file, copies / cat(bytes));
    }
    std::filesystem::remove_all(folder);
    return 1;
}

int run_persist(const SharedBoard& board, const SaverJob& job) {
    set_log_level(LogLevel::error);
    std::vector<runtime::KeptCopy> copies;
    for (const auto& entry : std::filesystem::directory_iterator(job.directory + ".copies")) {
        FileDescriptor memory(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
        copies.push_back({std::move(memory), std::stoull(entry.path().filename().string())});
    }
    const runtime::PersistTerms terms{
        .directory = job.directory, .round = job.round, .deadline = std::chrono::steady_clock::now() + 60s};
    mark(mark_begin);
    const auto done = persist_copies(terms, std::move(copies));
    if (done && done->checkpoint) board.acknowledge(done->step);
    mark(mark_end);
    if (done && done->checkpoint) return 0;
    board.print_error(done ? "the parts of all ranks were there, and no checkpoint came of them"
                           : done.error().context);
    return 1;
}

}  // namespace

TEST_CASE("a rank that is killed at any system call of a save takes no checkpoint with it") {
    if (!may_trace()) return;
    CHECK(kill_everywhere({.world = 1, .victim = 0}) == "");
    CHECK(kill_everywhere({.world = 2, .victim = 0}) == "");
    CHECK(kill_everywhere({.world = 2, .victim = 1}) == "");
}

TEST_CASE("a start that is killed at any system call while it finishes a draft leaves it to the next start") {
    if (!may_trace()) return;
    CHECK(kill_everywhere({.act = run_loader, .before = leave_a_draft}) == "");
}

TEST_CASE("bringing copies from memory to the disk, killed at any system call, leaves a directory to start from") {
    if (!may_trace()) return;
    CHECK(kill_everywhere({.act = run_persist, .before = leave_copies}) == "");
}
