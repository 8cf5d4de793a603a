#include "rendezvous/base/system/replace_file.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;

TEST_CASE("a pipe gets the whole text, also where its reader is slow") {
    const test::ScratchFolder folder;
    const auto path = folder / "pipe";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    REQUIRE(reader.valid());
    const std::string text(1 << 20, 'x');
    auto written = std::async(std::launch::async, [&] { return write_file(path, text); });
    // The reader begins when the pipe is full.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const int room = ::fcntl(reader.get(), F_GETPIPE_SZ);
    for (int held = 0; held < room && std::chrono::steady_clock::now() < deadline; std::this_thread::yield())
        REQUIRE(::ioctl(reader.get(), FIONREAD, &held) == 0);
    REQUIRE(::fcntl(reader.get(), F_SETFL, 0) == 0);
    std::string got(text.size() + 1, '\0');
    std::size_t size = 0;
    while (size < got.size()) {
        const auto count = ::read(reader.get(), got.data() + size, got.size() - size);
        REQUIRE(count >= 0);
        if (count == 0) break;
        size += static_cast<std::size_t>(count);
    }
    CHECK(written.get().has_value());
    CHECK(size == text.size());
}
