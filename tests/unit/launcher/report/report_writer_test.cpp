#include "launcher/report/report_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/read_file.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("host, job and pid stand in the report's name, and nothing else does") {
    const ReportNames names{.host = "gpu01", .job = "a/b", .pid = 42};
    CHECK(report_path("/r/%h-%j-%p.json", names) == "/r/gpu01-a_b-42.json");
    CHECK(report_path("100%%", names) == "100%");
    CHECK_FALSE(report_path("%n", names).has_value());
    CHECK_FALSE(report_path("r%", names).has_value());
}

TEST_CASE("a report replaces the one before and leaves nothing else") {
    const test::ScratchFolder folder;
    const auto path = folder / "report.json";
    REQUIRE(check_report_path(path).has_value());
    CHECK_FALSE(std::filesystem::exists(path));
    REQUIRE(write_report(path, "one\n").has_value());
    REQUIRE(write_report(path, "two\n").has_value());
    CHECK(read_file(path) == "two\n");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.string()), {}) == 1);
}

TEST_CASE("only this user may read a new report; an older one keeps its mode") {
    const test::ScratchFolder folder;
    const auto path = folder / "report.json";
    const auto mode = [&] { return std::filesystem::status(path).permissions(); };
    using enum std::filesystem::perms;
    REQUIRE(write_report(path, "one\n").has_value());
    CHECK(mode() == (owner_read | owner_write));
    std::filesystem::permissions(path, owner_read | owner_write | group_read | others_read);
    REQUIRE(write_report(path, "two\n").has_value());
    CHECK(mode() == (owner_read | owner_write | group_read | others_read));
}

TEST_CASE("a file or link that another process put at the temporary name of a report is not written to") {
    const test::ScratchFolder folder;
    const auto path = folder / "report.json";
    const auto squatted = path + "." + std::to_string(::getpid()) + ".tmp";
    const FileDescriptor victim(::open(squatted.c_str(), O_RDWR | O_CREAT, 0644));
    REQUIRE(victim.valid());
    REQUIRE(write_report(path, "one\n").has_value());
    struct stat squat {};
    struct stat report {};
    REQUIRE(::fstat(victim.get(), &squat) == 0);
    REQUIRE(::stat(path.c_str(), &report) == 0);
    CHECK(squat.st_ino != report.st_ino);
    CHECK(squat.st_size == 0);
}

TEST_CASE("whoever reads a report while it is written finds the old one or the new one, whole") {
    const test::ScratchFolder folder;
    const auto path = folder / "report.json";
    const std::string reports[] = {std::string(300'000, 'a'), std::string(200'000, 'b')};
    REQUIRE(write_report(path, reports[0]).has_value());
    constexpr int changes_wanted = 30;
    std::atomic<int> changes_seen = 0;
    std::atomic<bool> in_parts = false;
    std::atomic<bool> over = false;
    std::thread reader([&] {
        for (std::string last; !over && !in_parts;) {
            const auto now = read_file(path);
            in_parts = now != reports[0] && now != reports[1];
            changes_seen += now != last ? 1 : 0;
            last = now;
        }
    });
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    bool written = true;
    for (int i = 1; changes_seen < changes_wanted && !in_parts && std::chrono::steady_clock::now() < until; ++i)
        written = write_report(path, reports[i % 2]).has_value() && written;
    over = true;
    reader.join();
    CHECK(written);
    CHECK_FALSE(in_parts);
    CHECK((in_parts || changes_seen >= changes_wanted));
}

TEST_CASE("what cannot be replaced is written into: a pipe, and what is behind a link") {
    const test::ScratchFolder folder;
    const auto pipe = folder / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(write_report(pipe, "nobody reads\n").has_error());
    const FileDescriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
    REQUIRE(check_report_path(pipe).has_value());
    REQUIRE(write_report(pipe, "one\n").has_value());
    char read[8] = {};
    CHECK(::read(reader.get(), read, sizeof read) == 4);
    CHECK(std::filesystem::is_fifo(pipe));

    std::filesystem::create_symlink("pipe", folder / "link");
    REQUIRE(check_report_path(folder / "link").has_value());
    REQUIRE(write_report(folder / "link", "two\n").has_value());
    CHECK(::read(reader.get(), read, sizeof read) == 4);
    CHECK(std::filesystem::is_fifo(pipe));

    REQUIRE(write_report(folder / "real.json", "old and long\n").has_value());
    std::filesystem::create_symlink("real.json", folder / "link.json");
    REQUIRE(write_report(folder / "link.json", "new\n").has_value());
    CHECK(std::filesystem::is_symlink(folder / "link.json"));
    CHECK(read_file(folder / "real.json") == "new\n");
}

TEST_CASE("a report that cannot be written is refused with the path and the reason") {
    const test::ScratchFolder folder;
    const auto nowhere = check_report_path(folder / "missing/report.json");
    REQUIRE(nowhere.has_error());
    CHECK(nowhere.error().context.find("/missing/report.json: No such file or directory") != std::string::npos);
    const auto directory = check_report_path(folder.string());
    REQUIRE(directory.has_error());
    CHECK(directory.error().context.find("it is a directory") != std::string::npos);
    CHECK(write_report(folder / "missing/report.json", "x").has_error());
}
