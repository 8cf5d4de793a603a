// The power fails at any moment of a job that saves: whatever of its unflushed writes has reached the disk, the next
// start finds the last checkpoint that was told to be safe. And each fsync is needed for that.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/checkpoint/disk_model.h"
#include "tests/integration/checkpoint/disk_recorder.h"
#include "tests/integration/checkpoint/may_trace.h"
#include "tests/integration/checkpoint/saver.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/files/identity.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/rank_file.h"

using namespace muster;
using namespace muster::test;

namespace {

constexpr const char* job_folder = "a/ckpt";  // neither is there at first

struct Record {
    std::vector<DiskEvent> events;
    std::int64_t safe_at_end = 0;
    std::string trouble;
};

/// Records what jobs do to a disk, one behind the other.
class Recording {
  public:
    Recording() : recorder_((std::filesystem::create_directory(scratch_ / "disk"), scratch_ / "disk"), board_) {}

    /// All ranks are killed where `kill` says so.
    void save(int world, const std::vector<std::int64_t>& steps, const std::function<bool(const SyscallStop&)>& kill) {
        run(world, kill, [&](int rank) {
            return run_saver(board_, {.directory = directory(), .rank = rank, .world = world, .steps = steps});
        });
    }
    void load() {
        run(1, {}, [&](int) { return run_loader(board_, {.directory = directory(), .round = 1, .steps = {}}); });
    }
    [[nodiscard]] const DiskRecorder& recorder() const { return recorder_; }
    [[nodiscard]] Record record() const {
        const auto& strange = recorder_.misunderstood();
        return {recorder_.events(), board_.acknowledged(), strange.empty() ? board_.complaint() : strange};
    }

  private:
    [[nodiscard]] std::string directory() const { return scratch_ / cat("disk/", job_folder); }
    void run(int world, const std::function<bool(const SyscallStop&)>& kill, const std::function<int(int)>& act) {
        Tracer tracer;
        for (int rank = 0; rank < world; ++rank) {
            tracer.start_watched([&, rank] { return act(rank); });
        }
        tracer.run([&](const SyscallStop& stop) {
            recorder_.watch(stop);
            return kill && kill(stop) ? Next::kill_all : Next::go_on;
        });
        recorder_.settle();
    }

    ScratchFolder scratch_;
    SharedBoard board_;
    DiskRecorder recorder_;
};

void write_state(const DiskState& state, const std::string& root) {
    for (const auto& [path, contents] : state) {
        if (path.ends_with('/')) {
            std::filesystem::create_directories(root + "/" + path);
        } else {
            std::ofstream(root + "/" + path, std::ios::binary) << contents;
        }
    }
}

/// LATEST names a checkpoint that is there and whole.
std::string trouble_with_latest(const std::string& directory) {
    const auto text = runtime::read_text(directory + "/LATEST", 100);
    if (!text) return text.error().code == Errc::not_found ? "" : text.error().context;
    if (!text->ends_with('\n')) return cat("LATEST is '", *text, "'");
    const auto folder = cat(directory, '/', text->substr(0, text->size() - 1));
    const auto manifest = runtime::read_manifest(folder);
    if (!manifest) return cat("LATEST names ", folder, ": ", manifest.error().context);
    for (const auto& file : manifest->files) {
        const auto sum = runtime::verify_rank_file(cat(folder, '/', file.name));
        if (!sum || *sum != file.crc32c) return cat("LATEST names ", folder, ", where ", file.name, " is damaged");
    }
    return {};
}

/// Parts on other disks are known by the word that the directory had when they were written, as its own parts have it.
std::string trouble_with_identity(const std::string& directory) {
    const auto listing = runtime::list_directory(directory);
    if (!listing || listing->checkpoints.empty()) return {};
    const auto name = to_string(listing->checkpoints.front());
    const auto part = runtime::read_rank_file(cat(directory, '/', name, '/', runtime::rank_file_name(0)));
    if (!part) return {};  // the reader looks at that
    const auto now = runtime::identity_of(directory);
    return part->directory_word.ends_with(cat('-', now)) && !now.empty()
               ? std::string()
               : cat("the directory is '", now, "', and ", name, " is of ", part->directory_word);
}

/// Asks the reader about states of the disk, about each once.
class Reader {
  public:
    /// Why a state in which `safe` must be there is not good; nothing where it is.
    std::string trouble(const DiskState& state, std::int64_t safe) {
        std::string key;
        for (const auto& [path, contents] : state) key += cat(path, '\0', contents, '\0');
        auto [known, fresh] = found_.try_emplace(std::hash<std::string>{}(key));
        if (fresh) known->second = look(state);
        const auto& [step, why] = known->second;
        if (why.empty() && step >= safe) return {};
        std::string names;
        for (const auto& [path, contents] : state) names += cat("\n  ", path, " (", contents.size(), ")");
        return cat("step ", safe, " was safe, found ", why.empty() ? cat("step ", step) : why, " in", names);
    }
    [[nodiscard]] std::size_t count() const { return found_.size(); }

  private:
    struct Found {
        std::int64_t step = 0;
        std::string why;
    };
    Found look(const DiskState& state) {
        const ScratchFolder scratch;
        write_state(state, scratch.string());
        const SaverJob job{.directory = scratch / job_folder, .round = 9, .steps = {}};
        auto wrong = trouble_with_latest(job.directory);
        if (wrong.empty()) wrong = trouble_with_identity(job.directory);
        if (!wrong.empty()) return {0, wrong};
        auto step = load_alone(alone_, job);
        return step ? Found{*step, ""} : Found{0, step.error().context};
    }

    Communicator alone_ = join_shared_group({.rank = 0, .size = 1, .id = "alone", .place = nullptr});
    std::unordered_map<std::size_t, Found> found_;
};

/// The first bad state that a power cut may leave, where the flush numbered `ignored` among all does nothing.
std::string trouble_of(const Record& record, Reader& reader, std::size_t ignored = SIZE_MAX) {
    DiskModel disk;
    for (std::size_t i = 0; i <= record.events.size(); ++i) {
        const auto safe = i < record.events.size() ? record.events[i].safe_before : record.safe_at_end;
        std::string trouble;
        disk.for_each_state([&](const DiskState& state) {
            trouble = reader.trouble(state, safe);
            return trouble.empty();
        });
        if (!trouble.empty()) return cat("power cut before event ", i, ": ", trouble);
        if (i < record.events.size() && i != ignored) disk.apply(record.events[i]);
    }
    return {};
}

/// The fsyncs without which nothing is lost, by kind and how many of that kind came before: "the manifest 2".
std::string unneeded_flushes(const Record& record, Reader& reader) {
    std::string unneeded;
    std::map<std::string, int> seen;
    for (std::size_t i = 0; i < record.events.size(); ++i) {
        if (record.events[i].kind != DiskEvent::Kind::flush) continue;
        const auto name = cat(record.events[i].what, ' ', seen[record.events[i].what]++);
        if (trouble_of(record, reader, i).empty()) unneeded += cat(unneeded.empty() ? "" : ", ", name);
    }
    std::printf("%zu events;", record.events.size());
    for (const auto& [kind, count] : seen) std::printf(" %d fsyncs of %s;", count, kind.c_str());
    std::printf(" %zu states of the disk\n", reader.count());
    return unneeded;
}

using Kill = std::function<bool(const SyscallStop&)>;

/// When the `n`-th fsync of this kind, of any kind where it is empty, is about to be.
Kill at_flush(const Recording& recording, const std::string& kind, int n) {
    return [&recording, kind, n, seen = 0](const SyscallStop& stop) mutable {
        if (stop.moment != Moment::entry) return false;
        const auto flush = recording.recorder().flush_of(stop);
        return !flush.empty() && (kind.empty() || flush == kind) && seen++ == n;
    };
}

bool can_trace() {
    set_log_level(LogLevel::error);
    return may_trace();
}

}  // namespace

TEST_CASE("after a power cut the last safe checkpoint is found, and every fsync is needed for that") {
    if (!can_trace()) return;
    Recording recording;
    recording.save(2, {1, 2, 3}, {});
    const auto record = recording.record();
    REQUIRE(record.trouble == "");
    Reader reader;
    CHECK(trouble_of(record, reader) == "");
    // Behind the first save there is no older checkpoint that LATEST could name after it was removed.
    CHECK(unneeded_flushes(record, reader) == "the directory behind LATEST 0");
}

TEST_CASE("what a killed job has not flushed is safe once the next one has loaded it") {
    if (!can_trace()) return;
    for (int n = 0;; ++n) {
        Recording recording;
        recording.save(2, {1, 2}, at_flush(recording, "", n));
        const bool killed = recording.record().safe_at_end < 2;
        recording.load();
        const auto record = recording.record();
        INFO("killed at fsync " << n);
        REQUIRE(record.trouble == "");
        Reader reader;
        CHECK(trouble_of(record, reader) == "");
        if (!killed) break;
        REQUIRE(n < 100);
    }
}

TEST_CASE("what the next job flushes again is needed where its maker was killed before, and only there") {
    if (!can_trace()) return;
    const auto unneeded_after = [](const std::string& killed_at) {
        Recording recording;
        recording.save(1, {1, 2}, at_flush(recording, killed_at, 1));
        recording.load();
        CHECK(recording.record().safe_at_end == 2);
        Reader reader;
        return unneeded_flushes(recording.record(), reader);
    };
    // The ranks' files are flushed before the next job makes a checkpoint of them.
    CHECK(unneeded_after("a rank's file") ==
          "the directory behind LATEST 0, a folder above 2, "
          "the directory at the start 0, the directory behind LATEST 1");
    // The directory is flushed before the next job loads what was committed there.
    CHECK(unneeded_after("the directory behind a commit") == "the directory behind LATEST 0, a folder above 2");
}

TEST_CASE("a directory whose maker was killed before it was safe is made safe by the next job") {
    if (!can_trace()) return;
    for (const int n : {0, 1}) {
        Recording recording;
        recording.save(1, {1, 2}, at_flush(recording, "a folder above", n));
        recording.save(1, {1, 2}, {});
        const auto record = recording.record();
        INFO("killed at fsync " << n << " of a folder above");
        REQUIRE(record.trouble == "");
        REQUIRE(record.safe_at_end == 2);
        Reader reader;
        CHECK(trouble_of(record, reader) == "");
        CHECK(unneeded_flushes(record, reader) == "the directory behind LATEST 0");
    }
}
