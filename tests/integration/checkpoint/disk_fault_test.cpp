// A disk that is full, read-only or slow: training goes on, each failure is told in the system's words, and the
// checkpoint before it stays. In a mount namespace of its own.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/checkpoint/may_trace.h"
#include "tests/integration/checkpoint/saver.h"
#include "tests/integration/checkpoint/tracer.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::test;

namespace {

constexpr int no_namespace = 77;
constexpr std::size_t page_bytes = 4096;

/// As root, else as the root of a user namespace.
bool enter_own_mounts() {
    const auto user = cat("0 ", ::getuid(), " 1"), group = cat("0 ", ::getgid(), " 1");
    if (::unshare(CLONE_NEWNS) != 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
        std::ofstream("/proc/self/setgroups") << "deny";
        std::ofstream("/proc/self/uid_map") << user;
        std::ofstream("/proc/self/gid_map") << group;
    }
    return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

/// A world of one that trains and saves.
class Training {
  public:
    explicit Training(const std::string& directory)
        : world_(join_shared_group({.rank = 0, .size = 1, .id = "alone", .place = nullptr})),
          checkpointer_(
              Checkpointer::open(world_, nullptr, {.job = "job", .round = 0}, {.directory = directory, .keep_last = 1})
                  .value()) {}

    /// Why the step was not saved; empty where it was.
    std::string save(std::int64_t step) {
        model_.train_to(step);
        if (auto saved = checkpointer_.save(step, model_.state()); !saved) return "save(): " + saved.error().context;
        const auto finished = checkpointer_.finish();
        const auto reports = checkpointer_.reports();
        if (reports.size() != 1 || reports[0].step != step) return cat(reports.size(), " reports");
        const auto& trouble = reports[0].trouble;
        if (reports[0].persisted != trouble.empty()) return "a report that contradicts itself";
        const auto told = finished ? "" : finished.error().context;
        return told == (trouble.empty() ? "" : "the newest checkpoint was not saved: " + trouble) ? trouble : told;
    }
    /// The step that is loaded, and whether it is whole.
    std::string load() {
        auto state = model_.state();
        auto loaded = checkpointer_.load(state);
        if (!loaded) return loaded.error().context;
        model_.cursor = state.values["cursor"];
        const auto step = loaded->has_value() ? (*loaded)->step : 0;
        return cat("step ", step, model_.is_at(step) ? "" : " with other values");
    }
    Checkpointer& checkpointer() { return checkpointer_; }
    TinyModel& model() { return model_; }

  private:
    Communicator world_;
    Checkpointer checkpointer_;
    TinyModel model_{0, 1};
};

/// `body` in a process with mounts of its own; its complaint. Skipped where the system forbids that.
std::string with_own_mounts(const std::function<std::string()>& body) {
    const SharedBoard board;
    Tracer processes;
    const auto process = processes.start([&] {
        if (!enter_own_mounts()) return no_namespace;
        set_log_level(LogLevel::error);
        board.print_error(body());
        return 0;
    });
    const auto status = processes.run([](const SyscallStop&) { return Next::go_on; }).at(process);
    if (WIFEXITED(status) && WEXITSTATUS(status) == no_namespace) {
        skip("this system lets nobody have mounts of his own");
        return {};
    }
    const auto complaint = board.complaint();
    return complaint.empty() ? trouble_of(status) : complaint;
}

/// Is `text` what a failed call says of a file of this step's draft?
bool is_about(const std::string& text, const std::string& action, const std::string& directory, std::int64_t step,
              const std::string& end) {
    return text.starts_with(cat(action, ' ', directory, "/step_0000000", step, ".tmp-0-")) && text.ends_with(end);
}

/// Takes all pages of a file system but `free` ones.
void fill(const std::string& directory, std::size_t free) {
    const std::string page(page_bytes, 'x');
    const auto path = directory + "/ballast";
    std::size_t taken = 0;
    while (std::ofstream(path, std::ios::app | std::ios::binary) << page << std::flush) ++taken;
    std::filesystem::resize_file(path, (taken - free) * page_bytes);
}

/// What LATEST names is there, or LATEST is not.
bool latest_is_right(const std::string& directory) {
    std::ifstream latest(directory + "/LATEST");
    std::string name;
    return !(latest >> name) ? !std::filesystem::exists(directory + "/LATEST")
                             : std::filesystem::exists(cat(directory, '/', name, "/manifest.json"));
}

}  // namespace

TEST_CASE("a full disk fails each save with the file and the reason, and takes no checkpoint") {
    const ScratchFolder scratch;
    const auto directory = scratch / "c";
    // With room for so many pages, what is the first that does not find any?
    for (std::size_t room = 0; room < 6; ++room) {
        INFO("room for " << room << " pages");
        const auto wrong = with_own_mounts([&]() -> std::string {
            std::filesystem::create_directories(directory);
            if (::mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=128k") != 0) return "no tmpfs";
            Training training(directory);
            if (auto first = training.save(1); !first.empty()) return first;
            fill(directory, room);
            for (const std::int64_t step : {2, 3}) {
                const auto told = training.save(step);
                const auto file = room < 2 ? "/rank_00000.safetensors" : "/manifest.json";
                if (!latest_is_right(directory)) return "LATEST names what is not there";
                if (room > 2 && !told.empty()) return told;
                if (room > 2) break;
                if (!is_about(told, "write", directory, step, cat(file, ": No space left on device"))) return told;
                if (auto still = training.load(); still != "step 1") return still;
            }
            std::filesystem::remove(directory + "/ballast");
            if (auto last = training.save(4); !last.empty()) return last;
            auto loaded = training.load();
            return loaded == "step 4" && latest_is_right(directory) ? "" : loaded;
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("a directory that turns read-only fails each save with the reason, until it can be written again") {
    const ScratchFolder scratch;
    const auto directory = scratch / "c";
    const auto wrong = with_own_mounts([&]() -> std::string {
        Training training(directory);
        if (auto first = training.save(1); !first.empty()) return first;
        // With all that an ordinary user may not take from a mount.
        const unsigned long read_only = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
        // Over itself, since files that are open for writing keep the first mount from it.
        if (::mount(directory.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
            ::mount(nullptr, directory.c_str(), nullptr, read_only, nullptr) != 0) {
            return "no read-only mount";
        }
        for (const std::int64_t step : {2, 3}) {
            const auto told = training.save(step);
            if (!is_about(told, "make the folder", directory, step, ": Read-only file system")) return told;
            if (auto still = training.load(); still != "step 1") return still;
        }
        if (::umount2(directory.c_str(), MNT_DETACH) != 0) return "the mount stays";
        if (auto last = training.save(4); !last.empty()) return last;
        auto loaded = training.load();
        return loaded == "step 4" ? "" : loaded;
    });
    CHECK(wrong == "");
}

TEST_CASE("a disk that hangs in a write keeps no save() waiting: those that come meanwhile are left out and told") {
    if (!may_trace()) return;
    constexpr int left_out = 3;
    const ScratchFolder scratch;
    const SharedBoard board;
    Tracer tracer;
    const auto act = [&]() -> std::string {
        Training training(scratch / "c");
        auto& checkpointer = training.checkpointer();
        if (auto first = training.save(1); !first.empty()) return first;
        mark(mark_begin);
        for (std::int64_t step = 2; step <= 2 + left_out; ++step) {
            training.model().train_to(step);
            if (auto saved = checkpointer.save(step, training.model().state()); !saved) return saved.error().context;
            if (step > 2) board.count();
        }
        (void)checkpointer.finish();
        const auto reports = checkpointer.reports();
        if (reports.size() != 1 + left_out || !reports.back().persisted || reports.back().step != 2) {
            return cat(reports.size(), " reports");
        }
        for (std::size_t i = 0; i < left_out; ++i) {
            if (reports[i].trouble != "the previous save was still being written") return reports[i].trouble;
        }
        auto loaded = training.load();
        return loaded == "step 2" ? training.save(9) : loaded;
    };
    const auto process = tracer.start_watched([&] {
        set_log_level(LogLevel::error);
        board.print_error(act());
        return 0;
    });
    bool began = false;
    const auto ends = tracer.run([&](const SyscallStop& stop) {
        began = began || is_mark(stop, mark_begin);
        const bool writes = stop.number == SYS_pwrite64 && stop.moment == Moment::entry;
        return began && writes && board.counted() < left_out ? Next::hold : Next::go_on;
    });
    CHECK(board.counted() == left_out);
    CHECK(board.complaint() == "");
    CHECK(trouble_of(ends.at(process)) == "");
}
