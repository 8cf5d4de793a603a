#include "rendezvous/events/files/event_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "rendezvous/base/log_listener.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/other_user.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using nlohmann::json;

namespace {

std::string read(const std::string& path) {
    std::ifstream file(path);
    return (std::ostringstream() << file.rdbuf()).str();
}

std::string line(int number, std::size_t size = 20) {
    return cat("{\"number\":", number, ",\"fill\":\"", std::string(size, 'x'), "\"}\n");
}

void add(EventFile& file, int number) {
    file.add(line(number));
    REQUIRE(file.flush(60s));
}

/// This process can open no file while it lives.
struct NoDescriptors {
    NoDescriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before);
        const rlimit now{0, before.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &now);
    }
    ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
    rlimit before{};
};

}  // namespace

TEST_CASE("lines are appended, and a new file is its owner's alone") {
    const test::ScratchFolder folder;
    for (int run = 0; run < 2; ++run) {
        const auto file = EventFile::open(folder / "events");
        REQUIRE(file.has_value());
        (*file)->add(line(run));
        CHECK((*file)->flush(60s));
    }
    CHECK(read(folder / "events") == line(0) + line(1));
    struct stat facts {};
    ::stat((folder / "events").c_str(), &facts);
    CHECK((facts.st_mode & 0777) == 0600);
}

TEST_CASE(
    "no events go into what another user has put in the place of their file, and a link of this user's is followed") {
    const test::ScratchFolder folder;
    const auto path = folder / "events";
    REQUIRE(::symlink((folder / "target").c_str(), path.c_str()) == 0);
    CHECK(EventFile::open(path).has_value());
    CHECK(std::filesystem::exists(folder / "target"));
    if (!test::may_be_another_user()) return;
    constexpr uid_t stranger = 65533;
    const auto refusal =
        cat("write events to ", path, ": it belongs to user 65533, who could read it; name another file");
    SECTION("a link") {
        REQUIRE(::lchown(path.c_str(), stranger, stranger) == 0);
        CHECK(EventFile::open(path).error().context == refusal);
    }
    SECTION("a file") {
        REQUIRE(::chown((folder / "target").c_str(), stranger, stranger) == 0);
        CHECK(EventFile::open(path).error().context == refusal);
        REQUIRE(::rename((folder / "target").c_str(), path.c_str()) == 0);
        CHECK(EventFile::open(path).error().context == refusal);
        CHECK(read(path).empty());
    }
}

TEST_CASE("a directory gets a new file when one is full, and keeps as many as it should") {
    const test::ScratchFolder folder;
    const auto file = EventFile::open_in(folder / "events", {.file_bytes_max = 100, .file_count = 3});
    REQUIRE(file.has_value());
    for (int i = 0; i < 10; ++i) {
        (*file)->add(line(i));
        REQUIRE((*file)->flush(60s));
    }
    CHECK(read(folder / "events/events.jsonl") == line(8) + line(9));
    CHECK(read(folder / "events/events.1.jsonl") == line(6) + line(7));
    CHECK(read(folder / "events/events.2.jsonl") == line(4) + line(5));
    CHECK(::access((folder / "events/events.3.jsonl").c_str(), F_OK) != 0);
}

TEST_CASE("a directory has one writer, and who may only read it keeps no writer away") {
    const test::ScratchFolder folder;
    constexpr EventFile::Rotation rotation{.file_bytes_max = 100, .file_count = 3};
    const FileDescriptor reader(::open(folder.string().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(::flock(reader.get(), LOCK_EX) == 0);
    auto file = EventFile::open_in(folder.string(), rotation);
    REQUIRE(file.has_value());
    CHECK(
        EventFile::open_in(folder.string(), rotation).error().context.starts_with("another musterd writes its events"));
    struct stat facts {};
    REQUIRE(::stat((folder / "lock").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0600);
    file->reset();
    CHECK(EventFile::open_in(folder.string(), rotation).has_value());
}

TEST_CASE("a directory whose lock cannot be opened has its events all the same, and that is said") {
    const test::ScratchFolder folder;
    std::filesystem::create_directory(folder / "lock");
    std::string told;
    set_log_listener([&](std::string_view sentence) { told += sentence; });
    CHECK(EventFile::open_in(folder.string(), {}).has_value());
    set_log_listener({});
    CHECK(told.find("cannot lock ") != std::string::npos);
}

TEST_CASE("a new file that cannot be made costs no kept file, and the full one takes lines up to twice its size") {
    const test::ScratchFolder folder;
    const auto file = EventFile::open_in(folder / "events", {.file_bytes_max = 100, .file_count = 3});
    REQUIRE(file.has_value());
    for (int i = 0; i < 6; ++i) add(**file, i);
    {
        const NoDescriptors none;
        for (int i = 6; i < 10; ++i) add(**file, i);
    }
    CHECK(read(folder / "events/events.jsonl") == line(4) + line(5) + line(6) + line(7));
    CHECK(read(folder / "events/events.1.jsonl") == line(2) + line(3));
    CHECK(read(folder / "events/events.2.jsonl") == line(0) + line(1));
    add(**file, 10);
    CHECK(read(folder / "events/events.1.jsonl") == line(4) + line(5) + line(6) + line(7));
    CHECK(read(folder / "events/events.2.jsonl") == line(2) + line(3));
    const auto newest = read(folder / "events/events.jsonl");
    CHECK(json::parse(split(newest, '\n')[0])["data"]["dropped"] == 2);
    CHECK(newest.ends_with("\n" + line(10)));
}

TEST_CASE("a full file that somebody has moved away costs no event: the next one begins") {
    const test::ScratchFolder folder;
    const auto file = EventFile::open_in(folder / "events", {.file_bytes_max = 100, .file_count = 3});
    REQUIRE(file.has_value());
    for (int i = 0; i < 4; ++i) add(**file, i);
    REQUIRE(::rename((folder / "events/events.jsonl").c_str(), (folder / "archive").c_str()) == 0);
    for (int i = 4; i < 8; ++i) add(**file, i);
    CHECK(read(folder / "archive") == line(2) + line(3));
    CHECK(read(folder / "events/events.1.jsonl") == line(4) + line(5));
    CHECK(read(folder / "events/events.jsonl") == line(6) + line(7));
}

TEST_CASE("a file that cannot be opened is an error that names it") {
    const test::ScratchFolder folder;
    CHECK(EventFile::open(folder / "missing/events").error().context.find("missing/events") != std::string::npos);
    ::mkfifo((folder / "pipe").c_str(), 0600);
    CHECK(EventFile::open(folder / "pipe").has_error());  // nobody reads it
}

TEST_CASE("on a full disk whole lines stay, and a record tells how many were dropped") {
    const test::ScratchFolder folder;
    const auto file = EventFile::open(folder / "events");
    REQUIRE(file.has_value());
    {
        const test::FileSizeLimit limit(line(0).size() * 2 + 5);
        for (int i = 0; i < 5; ++i) {
            (*file)->add(line(i));
            REQUIRE((*file)->flush(60s));
        }
        CHECK(read(folder / "events") == line(0) + line(1));
    }
    (*file)->add(line(5));
    REQUIRE((*file)->flush(60s));
    const auto text = read(folder / "events");
    REQUIRE(text.starts_with(line(0) + line(1)));
    REQUIRE(text.ends_with("\n" + line(5)));
    const auto told = json::parse(split(text, '\n')[2]);
    CHECK(told["type"] == "muster.events.dropped.v1");
    CHECK(told["data"]["dropped"] == 3);
}

TEST_CASE("a reader that stalls delays nobody, and reads a record of what it missed") {
    const test::ScratchFolder folder;
    ::mkfifo((folder / "pipe").c_str(), 0600);
    const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
    REQUIRE(reader >= 0);
    std::string got;
    {
        const auto file = EventFile::open(folder / "pipe");
        REQUIRE(file.has_value());
        const auto one = line(1, 1'000);
        for (std::size_t sent = 0; sent < 3 * EventFile::waiting_bytes_max; sent += one.size()) (*file)->add(one);
        ::fcntl(reader, F_SETFL, 0);
        std::string piece(1 << 16, '\0');
        while (got.find("muster.events.dropped.v1") == std::string::npos) {
            const auto size = ::read(reader, piece.data(), piece.size());
            REQUIRE(size > 0);
            got.append(piece, 0, static_cast<std::size_t>(size));
        }
    }
    ::close(reader);
    // What waits, as much in the writing thread's hands, and the pipe.
    CHECK(got.size() < 2 * EventFile::waiting_bytes_max + (1 << 17));
}
