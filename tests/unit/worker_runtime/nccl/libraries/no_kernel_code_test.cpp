// A plugin that was built where no compiler for GPUs was: this program has no_kernel_code.cpp in the place of the code.
#include "tests/support/catch.h"
#include "worker_runtime/nccl/libraries/kernel_code.h"
#include "worker_runtime/nccl/libraries/kernel_image.h"

using namespace muster::runtime;

TEST_CASE("a plugin without code for GPUs says how to build one that has it") {
    REQUIRE(kernel_codes().empty());
    const auto image = KernelImage::load(CudaTable(), 0);
    REQUIRE(!image);
    CHECK(image.error().code == muster::Errc::unsupported);
    CHECK(image.error().context ==
          "this NCCL plugin was built without GPU kernels: build muster with clang++ or nvcc installed");
}
