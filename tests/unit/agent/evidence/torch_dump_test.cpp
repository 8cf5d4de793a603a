#include "agent/evidence/torch_dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

/// Torch's end of the pipe of rank 3.
struct Torch {
    Torch() : path(folder / "pipe_3.pipe") {
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
        reading = FileDescriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
    }
    [[nodiscard]] bool hears() const {
        char byte = 0;
        return ::read(reading.get(), &byte, 1) > 0;
    }
    [[nodiscard]] std::map<std::string, std::string> environment() const {
        return {{"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", folder / "pipe_"},
                {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", folder / "dump_"}};
    }
    test::ScratchFolder folder;
    std::string path;
    FileDescriptor reading;
};

constexpr Instant begin{1000s};

}  // namespace

TEST_CASE("torch's recorder is asked once, and its file is named when it has come") {
    const Torch torch;
    TorchDump dump(torch.environment());
    dump.ask(3, begin);
    dump.ask(3, begin);
    CHECK(torch.hears());
    CHECK(torch.hears());  // the end of the line
    CHECK_FALSE(torch.hears());
    CHECK(dump.poll(begin + 1s).empty());
    std::ofstream(torch.folder / "dump_3") << "record";
    CHECK(dump.poll(begin + 2s) ==
          std::vector<std::string>{cat("torch's flight record of rank 3: ", torch.folder / "dump_3")});
    CHECK(dump.poll(begin + 9s).empty());
}

TEST_CASE("an old file is no dump, and a recorder that does not write is told of") {
    const Torch torch;
    std::ofstream(torch.folder / "dump_3") << "of an earlier round";
    TorchDump dump(torch.environment());
    dump.ask(3, begin);
    CHECK(dump.poll(begin + 4s).empty());
    const auto late = dump.poll(begin + 5s);
    REQUIRE(late.size() == 1);
    CHECK(late[0].find("did not write ") != std::string::npos);
    dump.ask(3, begin + 6s);
    dump.forget();
    CHECK(dump.poll(begin + 20s).empty());
}

TEST_CASE("where torch chooses the place, the variable that says it is named") {
    const Torch torch;
    auto environment = torch.environment();
    environment.erase("TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
    TorchDump dump(environment);
    dump.ask(3, begin);
    const auto lines = dump.poll(begin + 5s);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("TORCH_NCCL_DEBUG_INFO_TEMP_FILE") != std::string::npos);
}

TEST_CASE("nobody is asked where nothing is enabled, nobody listens, or the path is a plain file's") {
    const Torch torch;
    TorchDump off({});
    off.ask(3, begin);
    TorchDump dump(torch.environment());
    dump.ask(4, begin);
    std::ofstream(torch.folder / "pipe_5.pipe") << "mine";
    dump.ask(5, begin);
    CHECK(off.poll(begin + 60s).empty());
    CHECK(dump.poll(begin + 60s).empty());
    CHECK_FALSE(torch.hears());
    std::string text;
    std::ifstream(torch.folder / "pipe_5.pipe") >> text;
    CHECK(text == "mine");
}
