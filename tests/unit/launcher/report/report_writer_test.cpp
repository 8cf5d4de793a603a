#include "launcher/report/report_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/read_file.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"
#include "tests/support/other_user.h"
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

namespace {

/// The answers of check_report_path() and write_report() to another user of the host: "refused" where the sentence
/// names the file's owner.
std::string as_another_user(const std::string& path) {
    int answers[2];
    REQUIRE(::pipe2(answers, O_CLOEXEC) == 0);
    const auto child = test::fork_with_test();
    if (child == 0) {
        constexpr uid_t nobody = 65534;
        if (::setresuid(nobody, nobody, nobody) != 0) ::_exit(1);
        std::string said;
        for (const auto& done : {check_report_path(path), write_report(path, "a line of stderr\n")})
            said += done ? "done "
                    : done.error().context.find("belongs to user 65533, who could") != std::string::npos
                        ? "refused "
                        : done.error().context;
        ::_exit(::write(answers[1], said.data(), said.size()) < 0 ? 1 : 0);
    }
    ::close(answers[1]);
    std::string said(200, '\0');
    const auto size = ::read(answers[0], said.data(), said.size());
    said.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    ::close(answers[0]);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    return said;
}

}  // namespace

TEST_CASE("a report is not written into what a third user put in its place in a directory for all") {
    if (!test::may_be_another_user()) return;
    constexpr uid_t stranger = 65533;
    const test::ScratchFolder folder;
    REQUIRE(::chmod(folder.string().c_str(), 01777) == 0);
    const auto path = folder / "report.json";
    const auto put = [&](const std::string& name, uid_t owner) {
        const FileDescriptor made(::open((folder / name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        REQUIRE(made.valid());
        REQUIRE(::fchmod(made.get(), 0666) == 0);
        REQUIRE(::fchown(made.get(), owner, owner) == 0);
    };
    SECTION("a file") {
        put("report.json", stranger);
        CHECK(as_another_user(path) == "refused refused ");
        CHECK(read_file(path).empty());
    }
    SECTION("a pipe") {
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
        REQUIRE(::chmod(path.c_str(), 0666) == 0);
        REQUIRE(::chown(path.c_str(), stranger, stranger) == 0);
        const FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        CHECK(as_another_user(path) == "refused refused ");
    }
    SECTION("a link to a file of the report's user") {
        put("mine", 65534);
        REQUIRE(::symlink("mine", path.c_str()) == 0);
        REQUIRE(::lchown(path.c_str(), stranger, stranger) == 0);
        CHECK(as_another_user(path) == "refused refused ");
        CHECK(read_file(folder / "mine").empty());
    }
    SECTION("a file in the third user's directory") {
        put("report.json", stranger);
        REQUIRE(::chown(folder.string().c_str(), stranger, stranger) == 0);
        REQUIRE(::chmod(folder.string().c_str(), 0755) == 0);
        CHECK(as_another_user(path) == "refused refused ");
        CHECK(read_file(path).empty());
    }
    SECTION("but into root's file, such as Kubernetes' /dev/termination-log") {
        put("report.json", 0);
        CHECK(as_another_user(path) == "done done ");
        CHECK(read_file(path) == "a line of stderr\n");
    }
    SECTION("and instead of the file where the directory is the report's user's") {
        put("report.json", stranger);
        REQUIRE(::chown(folder.string().c_str(), 65534, 65534) == 0);
        CHECK(as_another_user(path) == "done done ");
        struct stat facts {};
        REQUIRE(::stat(path.c_str(), &facts) == 0);
        CHECK(facts.st_uid == 65534);
        CHECK((facts.st_mode & 0777) == 0600);
    }
}

TEST_CASE("a file or link at a name made of the report's and the process id takes nothing of the report") {
    const test::ScratchFolder folder;
    const auto path = folder / "report.json";
    const auto squatted = path + "." + std::to_string(::getpid()) + ".tmp";
    const auto victim = folder / "victim";
    REQUIRE(FileDescriptor(::open(victim.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)).valid());
    SECTION("a file") {
        std::filesystem::create_hard_link(victim, squatted);
    }
    SECTION("a link") {
        std::filesystem::create_symlink(victim, squatted);
    }
    REQUIRE(write_report(path, "one\n").has_value());
    CHECK(read_file(path) == "one\n");
    CHECK(read_file(victim).empty());
}

TEST_CASE("whoever reads a report while it is written finds the old one or the new one, whole") {
    const test::ScratchFolder folder;
    const auto path = folder / "report.json";
    const std::string reports[] = {std::string(300'000, 'a'), std::string(200'000, 'b')};
    REQUIRE(write_report(path, reports[0]).has_value());
    constexpr int changes_wanted = 10;
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
