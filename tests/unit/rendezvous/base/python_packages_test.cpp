#include "rendezvous/base/system/python_packages.h"

#include <filesystem>

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
}
