// The code for GPUs that the build has put into the plugin, and which of it a GPU is given.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/skip.h"
#include "worker_runtime/nccl/libraries/kernel_code.h"
#include "worker_runtime/nccl/libraries/kernel_image.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// False, with a skip, where the build found no compiler for GPUs.
bool has_code() {
    const bool has = !kernel_codes().empty();
    if (!has) test::skip("the build found neither a clang++ with code for GPUs nor nvcc");
    return has;
}

std::string_view ptx() {
    return static_cast<const char*>(kernel_codes().back().data);
}

bool is_machine_code(const void* code) {
    return std::string_view(static_cast<const char*>(code), 4) ==
           "\x7f"
           "ELF";
}

int capability = 90;
std::vector<const void*> offered;
const void* taken = nullptr;

/// A GPU of `capability` whose driver takes `taken` alone, and writes down what it is offered.
CudaTable gpu(int its_capability, const void* takes) {
    capability = its_capability;
    taken = takes;
    offered.clear();
    CudaTable cuda;
    cuda.path = "libcudart.so.12";
    cuda.runtime_version = [](int* version) { return *version = 12060, cudaSuccess; };
    cuda.driver_version = cuda.runtime_version;
    cuda.last_error = [] { return cudaSuccess; };
    cuda.error_string = [](cudaError_t) { return "no kernel image"; };
    cuda.attribute = [](int* value, cudaDeviceAttr which, int) {
        *value = which == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
        return cudaSuccess;
    };
    cuda.load_library = [](void** library, const void* code, void*, void**, unsigned, void*, void**, unsigned) {
        offered.push_back(code);
        *library = const_cast<void*>(code);
        return code == taken ? cudaSuccess : cudaErrorNoKernelImageForDevice;
    };
    cuda.get_kernel = [](void** kernel, void* library, const char*) { return *kernel = library, cudaSuccess; };
    return cuda;
}

/// Without the products with a known checksum: their numbers are whole and small, so every rounding is exact.
std::string code_with_roundings() {
    std::string kept;
    for (auto text = ptx(); !text.empty();) {
        const auto end = std::min({text.find("\n.visible .entry", 1), text.find("\n.weak .func", 1), text.size()});
        const auto part = text.substr(0, end);
        if (part.find("muster_Check") == std::string_view::npos &&
            part.find("kernels11Check") == std::string_view::npos)
            kept += part;
        text.remove_prefix(end);
    }
    return kept;
}

}  // namespace

TEST_CASE("the build has compiled every kernel for GPUs, and nothing in it is fused or approximate") {
    if (!has_code()) return;
    for (const auto* const name : kernels::kernel_names) {
        INFO(name);
        CHECK(ptx().find(".entry " + std::string(name) + "(") != std::string_view::npos);
    }
    // Without a rounding of its own, an addition and a multiplication may become one operation in the driver.
    const auto code = code_with_roundings();
    REQUIRE(code.size() > ptx().size() / 2);
    for (const auto* const wrong :
         {"fma.", "mad.f", ".approx", ".ftz", ".full", "add.f", "sub.f", "mul.f", "div.f", "sqrt.f", "rcp.f"}) {
        INFO(wrong);
        CHECK(code.find(wrong) == std::string::npos);
    }
    CHECK(code.find("add.rn.f32") != std::string::npos);
}

TEST_CASE("a GPU is given machine code of its major capability, best first, and then PTX") {
    if (!has_code()) return;
    for (const int wanted : {75, 80, 86, 90, 100, 120}) {
        const auto cuda = gpu(wanted, ptx().data());
        CHECK(KernelImage::load(cuda, 0).has_value());
        REQUIRE(!offered.empty());
        CHECK(offered.back() == ptx().data());
        for (const auto* const code : offered) CHECK(is_machine_code(code) == (code != ptx().data()));
        for (const auto& code : kernel_codes()) {
            const bool fits = code.major == 0 || (code.major == wanted / 10 && code.minor <= wanted % 10);
            INFO("code of " << code.major << "." << code.minor << " for " << wanted);
            CHECK(std::count(offered.begin(), offered.end(), code.data) == (fits ? 1 : 0));
        }
    }
    const auto* const best = kernel_codes().front().data;
    const int of_best = kernel_codes().front().major * 10 + kernel_codes().front().minor;
    CHECK(KernelImage::load(gpu(of_best == 0 ? 90 : of_best, best), 0).has_value());
    CHECK(offered.size() == 1);
}

TEST_CASE("why a GPU gets no kernels is told with what to do") {
    if (!has_code()) return;
    const auto said = [](const CudaTable& cuda) {
        const auto image = KernelImage::load(cuda, 0);
        return image ? std::string() : image.error().context;
    };
    const auto has = [](const std::string& text, std::string_view part) {
        INFO(text);
        CHECK(text.find(part) != std::string::npos);
    };
    auto old_runtime = gpu(90, ptx().data());
    old_runtime.load_library = nullptr;
    has(said(old_runtime), "need CUDA runtime 12.8 or newer, but libcudart.so.12 is older (CUDA runtime 12.6");
    has(said(old_runtime), "name a newer one in MUSTER_CUDA_LIBRARY");
    has(said(gpu(61, nullptr)), "no kernels for GPUs of compute capability 6.1");
    has(said(gpu(90, nullptr)), "load the GPU kernels: no kernel image");
}
