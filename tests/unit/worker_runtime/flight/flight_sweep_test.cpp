// This program has posix_fallocate() as a function of its own, which signals interrupt when a test wants it, and which
// finds no space.
#include "worker_runtime/flight/flight_sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "worker_runtime/flight/flight_recorder.h"

namespace {

/// So many more calls end as one into which a signal comes.
int interruptions_left = 0;
bool disk_is_full = false;

}  // namespace

extern "C" int posix_fallocate(int file, off_t at, off_t size_bytes) {
    if (interruptions_left > 0) return --interruptions_left, EINTR;
    if (disk_is_full) return ENOSPC;
    return ::ftruncate(file, at + size_bytes) == 0 ? 0 : errno;
}

namespace muster::runtime {

namespace {

/// The pid of a process that has been and is no more.
pid_t past_process() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return child;
}

/// A rank's record as a process `pid` left it on this host.
void leave_record(const test::ScratchFolder& folder, const std::string& job, int rank, pid_t pid, const char* boot) {
    auto recorder = FlightRecorder::open({.rank = rank, .world = rank + 1, .job = job}, folder.string());
    REQUIRE(recorder.has_value());
    std::fstream file(folder / flight_file_name(job, rank), std::ios::in | std::ios::out | std::ios::binary);
    FlightHeader header;
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    header.pid = pid;
    if (boot != nullptr) std::copy_n(boot, std::char_traits<char>::length(boot) + 1, header.boot_id);
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
}

std::vector<std::string> names_in(const test::ScratchFolder& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.string()))
        names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace

TEST_CASE("a rank that starts removes what a larger world of its job left behind, and nothing else") {
    const test::ScratchFolder folder;
    const pid_t dead = past_process();
    leave_record(folder, "j", 1, dead, nullptr);
    leave_record(folder, "j", 5, dead, nullptr);
    leave_record(folder, "j", 6, ::getpid(), "an earlier boot");
    leave_record(folder, "j", 7, ::getpid(), nullptr);
    leave_record(folder, "other", 5, dead, nullptr);
    std::ofstream(folder / "flight_j_8.ring") << "not a record";
    REQUIRE(::mkfifo((folder / "flight_j_9.ring").c_str(), 0600) == 0);  // which nobody writes into
    std::ofstream(folder / "flight_j_x.ring") << "not a rank";
    REQUIRE(FlightRecorder::open({.rank = 0, .world = 2, .job = "j"}, folder.string()).has_value());
    CHECK(names_in(folder) == std::vector<std::string>{"flight_j_0.ring", "flight_j_1.ring", "flight_j_7.ring",
                                                       "flight_j_8.ring", "flight_j_9.ring", "flight_j_x.ring",
                                                       "flight_other_5.ring"});
}

TEST_CASE("signals that come while the memory of a record is taken keep no worker from its start") {
    const test::ScratchFolder folder;
    for (const auto& place : {std::string(), folder.string()}) {
        interruptions_left = 3;
        const auto recorder = FlightRecorder::open({.rank = 0, .world = 1, .job = "j"}, place);
        CHECK(recorder.has_value());
        CHECK(interruptions_left == 0);
    }
}

TEST_CASE("a rank that finds no space for its record leaves no file that is none") {
    const test::ScratchFolder folder;
    disk_is_full = true;
    const auto recorder = FlightRecorder::open({.rank = 0, .world = 1, .job = "j"}, folder.string());
    disk_is_full = false;
    REQUIRE_FALSE(recorder.has_value());
    CHECK(recorder.error().context.find("reserve 258 KiB for the flight record in MUSTER_FLIGHT_DIR") == 0);
    CHECK(names_in(folder).empty());
}

TEST_CASE("users outside of its group cannot read a record, also where the umask would let them") {
    const test::ScratchFolder folder;
    const auto before = ::umask(0);
    const auto recorder = FlightRecorder::open({.rank = 0, .world = 1, .job = "j"}, folder.string());
    ::umask(before);
    REQUIRE(recorder.has_value());
    struct stat facts {};
    REQUIRE(::stat((folder / flight_file_name("j", 0)).c_str(), &facts) == 0);
    CHECK((facts.st_mode & 07777) == 0640);
}

TEST_CASE("a record takes the place of its forerunner, which whoever still writes it keeps") {
    const test::ScratchFolder folder;
    auto before = FlightRecorder::open({.rank = 0, .world = 1, .round = 1, .job = "a/b"}, folder.string());
    auto after = FlightRecorder::open({.rank = 0, .world = 1, .round = 2, .job = "a/b"}, folder.string());
    REQUIRE(before.has_value());
    REQUIRE(after.has_value());
    (*before)->note_failure("the first one's");  // would be SIGBUS in a file cut short
    std::ifstream file(folder / "flight_a_b_0.ring", std::ios::binary);
    FlightHeader header;
    REQUIRE(file.read(reinterpret_cast<char*>(&header), sizeof header));
    CHECK(header.round == 2);
    CHECK(header.failure[0] == '\0');
}

}  // namespace muster::runtime
