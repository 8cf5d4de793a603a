// The stand-in for CUDA's runtime, where it loads code and launches kernels. It takes our PTX as text, and finds out of
// it which kernels there are and how large their arguments are; what runs is the same source, compiled for the host. A
// launch is refused, with a line on stderr, where its shape is wrong, or where memory that the kernel names is not
// wholly that of one allocation of the GPU.
//
// MUSTER_STANDIN_KERNELS    0: no code can be loaded
// MUSTER_STANDIN_KERNEL_MS  each kernel takes so much longer, in which the host does nothing, as beside a GPU
#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

#include "tests/stand_ins/current_device.h"
#include "tests/stand_ins/device_memory.h"
#include "tests/stand_ins/run_kernel.h"

namespace {

using namespace muster::kernels;

/// A kernel that has been launched; empty where its arguments are wrong, which `said` then tells.
using Launched = std::optional<std::function<void()>>;

template <class Kernel>
Launched launched(const void* arguments, std::uint32_t blocks, bool is_wrong, std::string& said) {
    Kernel kernel = *static_cast<const Kernel*>(arguments);
    void* written = nullptr;
    kernel.memory([&]<class T>(T*& pointer, std::uint64_t count) {
        void* const reached = muster::stand_ins::reach_whole(pointer, count * sizeof(T));
        if (reached == nullptr || reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) != 0) {
            said = "an argument is not the memory of the GPU that it should be, of " +
                   std::to_string(count * sizeof(T)) + " bytes";
        }
        pointer = static_cast<T*>(reached);
        written = const_cast<std::remove_const_t<T>*>(pointer);  // the last one is a result
    });
    if (!said.empty()) return std::nullopt;
    return [kernel, blocks, bit = is_wrong ? static_cast<unsigned char*>(written) : nullptr] {
        muster::stand_ins::run_kernel(kernel, blocks);
        if (bit != nullptr) *bit ^= 1;
    };
}

struct KnownKernel {
    const char* name;
    std::size_t argument_bytes;
    Launched (*launched)(const void*, std::uint32_t, bool, std::string&);
};

#define MUSTER_KNOWN(name) KnownKernel{"muster_" #name, sizeof(name), launched<name>},
const std::array<KnownKernel, kernel_count> known_kernels{MUSTER_KERNELS(MUSTER_KNOWN)};
#undef MUSTER_KNOWN

/// Bytes of the one argument of each kernel of a PTX text.
using Library = std::map<std::string, std::size_t, std::less<>>;

Library read_ptx(std::string_view text) {
    constexpr std::string_view entry = ".entry ";
    Library kernels;
    for (std::size_t at = text.find(entry); at != text.npos; at = text.find(entry, at + 1)) {
        const std::size_t name = at + entry.size();
        const std::size_t open = text.find('(', name);
        const std::string_view parameters = text.substr(open, text.find(')', open) - open);
        const std::size_t size = parameters.find('[');
        const bool one = size != parameters.npos && parameters.find(".param") == parameters.rfind(".param");
        kernels.emplace(text.substr(name, open - name),
                        one ? std::strtoul(parameters.data() + size + 1, nullptr, 10) : 0);
    }
    return kernels;
}

cudaError_t refuse(cudaError_t error, const char* kernel, const std::string& why) {
    std::fprintf(stderr, "CUDA stand-in: %s: %s\n", kernel, why.c_str());
    return muster::stand_ins::keep(error);
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
    const char* const text = std::getenv("MUSTER_STANDIN_KERNELS");
    if (text != nullptr && std::string_view(text) == "0") return muster::stand_ins::keep(cudaErrorNotSupported);
    // Machine code is for a GPU.
    if (*static_cast<const char*>(code) == '\x7f') return muster::stand_ins::keep(cudaErrorNoKernelImageForDevice);
    *library = reinterpret_cast<cudaLibrary_t>(new Library(read_ptx(static_cast<const char*>(code))));
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
    const auto& kernels = *reinterpret_cast<const Library*>(library);
    const auto found = kernels.find(std::string_view(name));
    if (found == kernels.end()) return refuse(cudaErrorSymbolNotFound, name, "the PTX has no such kernel");
    for (const auto& each : known_kernels) {
        if (found->first != each.name) continue;
        if (found->second != each.argument_bytes) {
            return refuse(cudaErrorInvalidValue, name,
                          "its argument has " + std::to_string(found->second) + " bytes in the PTX, and " +
                              std::to_string(each.argument_bytes) + " on the host");
        }
        *kernel = reinterpret_cast<cudaKernel_t>(const_cast<KnownKernel*>(&each));
        return cudaSuccess;
    }
    return refuse(cudaErrorSymbolNotFound, name, "the stand-in has no such kernel");
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                             cudaStream_t stream) {
    const auto& kernel = *static_cast<const KnownKernel*>(function);
    const bool shaped = grid.x > 0 && grid.y == 1 && grid.z == 1 && block.x == threads && block.y == 1 &&
                        block.z == 1 && shared_bytes == 0;
    if (!shaped)
        return refuse(cudaErrorInvalidConfiguration, kernel.name, "launched in a shape that it is not made for");
    if (standin_device_of(stream) != muster::stand_ins::use_current_device()) {
        return refuse(cudaErrorInvalidResourceHandle, kernel.name, "launched by a thread that uses another GPU");
    }
    std::string said;
    auto work = kernel.launched(arguments[0], grid.x, muster::stand_ins::has_fault(kernel.name), said);
    if (!work) return refuse(cudaErrorInvalidValue, kernel.name, said);
    return cudaLaunchHostFunc(
        stream,
        [](void* given) {
            const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(given));
            (*own)();
            if (const char* const pace = std::getenv("MUSTER_STANDIN_KERNEL_MS"))
                std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(pace)));
        },
        new std::function<void()>(std::move(*work)));
}

}  // extern "C"
