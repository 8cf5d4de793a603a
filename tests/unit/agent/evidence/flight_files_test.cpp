#include "agent/evidence/flight_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace fs = std::filesystem;

namespace {

FileDescriptor memory_with(const std::string& text) {
    FileDescriptor memory(::memfd_create("a record", MFD_CLOEXEC));
    REQUIRE(::write(memory.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return memory;
}

std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a worker's record is a file, that of the next round in its place, and none after a good end") {
    const test::ScratchFolder folder;
    FlightFiles files;
    CHECK(files.directory().empty());
    REQUIRE(files.keep(memory_with("the first, longer one").get(), folder / "a.ring").has_value());
    REQUIRE(files.keep(memory_with("the second").get(), folder / "a.ring").has_value());
    REQUIRE(files.keep(memory_with("").get(), folder / "b.ring").has_value());
    CHECK(content(folder / "a.ring") == "the second");
    CHECK(files.directory() == folder.string());
    files.remove_all();
    CHECK(fs::is_empty(folder.string()));
    CHECK(files.directory().empty());
}

TEST_CASE("what is no record is refused, and nothing is written") {
    const test::ScratchFolder folder;
    FlightFiles files;
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const FileDescriptor reading(pipe_ends[0]);
    const FileDescriptor writing(pipe_ends[1]);
    CHECK(files.keep(reading.get(), folder / "pipe.ring").error().code == Errc::invalid_argument);
    const FileDescriptor huge(::memfd_create("huge", MFD_CLOEXEC));
    REQUIRE(::ftruncate(huge.get(), off_t{1} << 40) == 0);
    CHECK(files.keep(huge.get(), folder / "huge.ring").error().code == Errc::invalid_argument);
    CHECK(fs::is_empty(folder.string()));
}

TEST_CASE("a file that cannot be written whole is an error that names it, and is not left there") {
    const test::ScratchFolder folder;
    FlightFiles files;
    const auto memory = memory_with(std::string(1000, 'x'));
    const auto kept = [&] {
        const test::FileSizeLimit limit(100);
        return files.keep(memory.get(), folder / "a.ring");
    }();
    REQUIRE(kept.has_error());
    CHECK(kept.error().context.find(cat("write the flight record ", folder / "a.ring")) != std::string::npos);
    CHECK(fs::is_empty(folder.string()));
}
