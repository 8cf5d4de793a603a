#include "rendezvous/base/system/python_packages.h"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;

TEST_CASE("the packages of an environment are read from their folders") {
    const test::ScratchFolder folder;
    for (const char* name :
         {"lib/python3.11/site-packages/torch-2.13.0+cpu.dist-info",
          "lib/python3.11/site-packages/nvidia_nccl_cu13-2.28.9.dist-info", "lib/python3.11/site-packages/torch",
          "lib/python3.11/site-packages/x.dist-info", "lib/pkgconfig"})
        std::filesystem::create_directories(folder / name);
    const auto packages = python_packages(folder.string());
    CHECK(packages.size() == 2);
    CHECK(packages.at("torch") == "2.13.0+cpu");
    CHECK(packages.at("nvidia_nccl_cu13") == "2.28.9");
    CHECK(python_packages("").empty());
    CHECK(python_packages(folder / "none").empty());
    std::filesystem::create_directories(folder / "lib/python3/dist-packages/numpy-2.3.1.dist-info");
    CHECK(python_packages(folder.string()).at("numpy") == "2.3.1");
}

TEST_CASE("the prefix of the python3 in PATH is that of an environment, else of the program behind its links") {
    const test::ScratchFolder folder;
    namespace fs = std::filesystem;
    for (const char* name : {"venv/bin", "opt/python/bin", "usr/bin", "empty"}) fs::create_directories(folder / name);
    fs::copy_file("/proc/self/exe", folder / "opt/python/bin/python3.11");
    for (const char* name : {"venv/bin/python3", "usr/bin/python3"})
        fs::create_symlink(folder / "opt/python/bin/python3.11", folder / name);
    const auto path = [&](const char* name) { return (folder / name); };
    CHECK(python_prefix(path("empty") + ":" + path("usr/bin")) == fs::canonical(path("opt/python")).string());
    std::ofstream(path("venv/pyvenv.cfg")) << "home = /usr/bin\n";
    CHECK(python_prefix("::" + path("venv/bin") + ":" + path("usr/bin")) == path("venv"));
    CHECK(python_prefix(path("empty")).empty());
    CHECK(python_prefix("").empty());
}
