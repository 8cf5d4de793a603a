// Which of several CUDA runtimes is taken, with the stand-ins in their places.
#include "worker_runtime/nccl/libraries/cuda_table.h"

#include <dlfcn.h>

#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::runtime;

namespace {

std::string taken(const std::vector<std::string>& names) {
    const auto table = CudaTable::load_first(names);
    return table ? table->path : table.error().context;
}

}  // namespace

TEST_CASE("a runtime that the driver is too old for is taken only where there is no other") {
    CHECK(taken({STANDIN_CUDA_NEW, STANDIN_CUDA}) == STANDIN_CUDA);
    CHECK(taken({"libcudart.so.of-no-version", STANDIN_CUDA_NEW}) == STANDIN_CUDA_NEW);
}

TEST_CASE("where there is none, the person hears once of each that was tried, and what to do") {
    // The C library, which the process has already, comes first.
    const auto said = taken({"libcudart.so.of-no-version", "libc.so.6"});
    CHECK(said.starts_with("no CUDA runtime library (/"));
    CHECK(said.find("libc.so.6 lacks ") == said.rfind("libc.so.6 lacks "));
    CHECK(
        said.ends_with("; libcudart.so.of-no-version: cannot open shared object file: No such file or directory); "
                       "install it on this host, or name its file in MUSTER_CUDA_LIBRARY"));
    const auto named = CudaTable::load("/no/libcudart.so");
    REQUIRE_FALSE(named.has_value());
    CHECK(named.error().context ==
          "no CUDA runtime library (/no/libcudart.so: cannot open shared object file: No such file or directory); "
          "MUSTER_CUDA_LIBRARY names it: set it to an existing file, or unset it to search in the usual places");
}

TEST_CASE("what the process has loaded already comes first") {
    const test::ScratchFolder scratch;
    const std::string other = scratch / "libcudart.so";
    std::filesystem::copy_file(STANDIN_CUDA, other);
    REQUIRE(::dlopen(STANDIN_CUDA, RTLD_NOW | RTLD_LOCAL) != nullptr);
    CHECK(taken({other, STANDIN_CUDA}) == STANDIN_CUDA);
}

TEST_CASE("the host's memory is not the GPU's, and asking leaves no error behind") {
    const auto table = CudaTable::load(STANDIN_CUDA);
    REQUIRE(table.has_value());
    void* memory = nullptr;
    REQUIRE(table->allocate(&memory, 100) == cudaSuccess);
    CHECK(table->is_of_device(memory));
    CHECK_FALSE(table->is_of_device(&memory));
    CHECK(table->free(memory) == cudaSuccess);
    CHECK(table->check(table->free(memory), "free it twice").has_error());
    CHECK(table->last_error() == cudaSuccess);
}
