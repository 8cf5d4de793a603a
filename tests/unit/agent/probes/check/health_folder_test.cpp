#include "agent/probes/check/health_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster::agent;

namespace {

struct Folder {
    muster::test::ScratchFolder directory;
    std::string path = directory.string();

    Folder() { ::chmod(path.c_str(), 0755); }
    std::string add(const std::string& name, mode_t mode) {
        const auto file = path + "/" + name;
        std::ofstream(file) << "#!/bin/sh\n";
        ::chmod(file.c_str(), mode);
        return file;
    }
    HealthFolder read(uid_t owner = ::geteuid()) const { return read_health_folder(path, owner); }
};

}  // namespace

TEST_CASE("the executables of the folder run in order of their names") {
    Folder folder;
    const auto second = folder.add("20-gpu", 0755);
    const auto first = folder.add("10-nhc.sh", 0700);
    folder.add("README", 0644);
    folder.add(".30-off", 0755);
    std::filesystem::create_directory(folder.path + "/40-folder");
    const auto link = folder.path + "/50-link";
    std::filesystem::create_symlink(second, link);
    std::filesystem::create_symlink("/none", folder.path + "/60-nowhere");
    const auto found = folder.read();
    CHECK(found.programs == std::vector<std::string>{first, second, link});
    REQUIRE(found.refused.size() == 1);
    CHECK(found.refused[0].find("60-nowhere is not run: ") != std::string::npos);
}

TEST_CASE("what others than its owner can change is not run") {
    Folder folder;
    folder.add("10-group", 0775);
    folder.add("20-all", 0757);
    const auto good = folder.add("30-good", 0755);
    const auto found = folder.read();
    CHECK(found.programs == std::vector<std::string>{good});
    REQUIRE(found.refused.size() == 2);
    CHECK(found.refused[0].find("10-group is not run: others than its owner can change it; run: chmod go-w ") !=
          std::string::npos);
    const auto foreign = folder.read(::geteuid() + 1);
    CHECK(foreign.programs.empty());
    REQUIRE(foreign.refused.size() == 1);
    CHECK(foreign.refused[0].find(" is not run: it belongs to user ") != std::string::npos);
    ::chmod(folder.path.c_str(), 0777);
    CHECK(folder.read().programs.empty());
    CHECK(folder.read().refused.size() == 1);
}

TEST_CASE("a check that cannot be read is refused, and not taken for gone") {
    Folder folder;
    const auto loop = folder.path + "/10-loop";
    std::filesystem::create_symlink(loop, loop);
    const auto found = folder.read();
    CHECK(found.programs.empty());
    REQUIRE(found.refused.size() == 1);
    CHECK(found.refused[0].find("10-loop is not run: ") != std::string::npos);
}

TEST_CASE("a folder with hundreds of files runs 64 of them, and says so in a few sentences") {
    Folder folder;
    for (int i = 0; i < 300; ++i) folder.add(std::to_string(1000 + i), i < 100 ? 0755 : 0777);
    const auto found = folder.read();
    CHECK(found.programs.size() == 64);
    CHECK(found.programs.back().ends_with("/1063"));
    REQUIRE(found.refused.size() == 9);
    CHECK(found.refused[0].find("/1064 is not run: at most 64 checks") != std::string::npos);
    CHECK(found.refused[8].starts_with("228 more files in "));
}

TEST_CASE("what runs is the file behind the links, judged again") {
    Folder folder;
    const auto file = folder.add("nhc", 0755);
    const auto link = folder.path + "/10-link";
    std::filesystem::create_symlink(file, link);
    CHECK(check_to_run(link, ::geteuid()).program == std::filesystem::canonical(file).string());
    ::chmod(file.c_str(), 0777);
    CHECK(check_to_run(link, ::geteuid()).program.empty());
    CHECK(check_to_run(link, ::geteuid()).refused.find("chmod go-w") != std::string::npos);
    std::filesystem::remove(file);
    CHECK(check_to_run(link, ::geteuid()).refused.find("No such file") != std::string::npos);
}

TEST_CASE("a check whose path env would take for a variable is refused by name") {
    Folder folder;
    const auto good = folder.add("10-good", 0755);
    folder.add("20-gpus=8", 0755);
    const auto found = folder.read();
    CHECK(found.programs == std::vector<std::string>{good});
    REQUIRE(found.refused.size() == 1);
    CHECK(found.refused[0].find("20-gpus=8 is not run: no '='") != std::string::npos);
}

TEST_CASE("a folder that is not there has no checks, one that cannot be read is named") {
    CHECK(read_health_folder("/none/health.d").programs.empty());
    CHECK(read_health_folder("/none/health.d").refused.empty());
    CHECK(read_health_folder("/dev/null").refused.size() == 1);
}
