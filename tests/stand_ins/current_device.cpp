#include "tests/stand_ins/current_device.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

#ifdef STANDIN_NEW
constexpr int version = 99000;
#else
constexpr int version = 12090;
#endif
constexpr int version_of_driver = 12090;

thread_local int current_device = 0;
/// As the driver keeps it: null in a thread that has used no GPU.
thread_local void* current_context = nullptr;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<unsigned> contexts = 0;

/// What stands for the context that the runtime makes on each GPU.
char primary_contexts[32];

int device_count() {
    const char* const text = std::getenv("MUSTER_STANDIN_GPUS");
    return text != nullptr ? std::atoi(text) : 8;
}

}  // namespace

namespace muster::stand_ins {

int use_current_device() {
    if (current_context == nullptr) current_context = &primary_contexts[current_device];
    contexts |= 1u << current_device;
    return current_device;
}

bool has_fault(std::string_view fault) {
    return has_fault(fault, current_device);
}

bool has_fault(std::string_view fault, int device) {
    const char* const text = std::getenv("MUSTER_STANDIN_GPU_FAULT");
    if (text == nullptr) return false;
    const std::string_view planted(text);
    const auto at = planted.find('@');
    if (planted.substr(0, at) != fault) return false;
    if (at == planted.npos) return true;
    const char* const names = std::getenv("CUDA_VISIBLE_DEVICES");
    std::string_view visible(names != nullptr ? names : "");
    for (int i = 0; i < device; ++i) visible.remove_prefix(std::min(visible.find(','), visible.size() - 1) + 1);
    return planted.substr(at + 1) == visible.substr(0, visible.find(','));
}

cudaError_t keep(cudaError_t result) {
    if (result != cudaSuccess && result != cudaErrorNotReady) last_error = result;
    return result;
}

}  // namespace muster::stand_ins

using muster::stand_ins::keep;

extern "C" {

unsigned standin_contexts() {
    return contexts;
}

cudaError_t cudaRuntimeGetVersion(int* found) {
    *found = version;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* found) {
    *found = version_of_driver;
    return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorNoDevice: return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorInvalidResourceHandle: return "invalid resource handle";
        case cudaErrorNotSupported: return "operation not supported";
        case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
        default: return "an error that the stand-in does not know";
    }
}

cudaError_t cudaGetLastError() {
    return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = device_count();
    return keep(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= device_count()) return keep(cudaErrorInvalidDevice);
    current_device = device;
    current_context = nullptr;
    muster::stand_ins::use_current_device();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}

// Of the driver, whose library has the runtime's place here too.

int cuCtxGetCurrent(void** context) {
    *context = current_context;
    return 0;
}

/// The runtime's device follows the driver's context; where there is none, it stays what it was.
int cuCtxSetCurrent(void* context) {
    current_context = context;
    if (context != nullptr) current_device = static_cast<int>(static_cast<char*>(context) - primary_contexts);
    return 0;
}

cudaError_t cudaDeviceGetPCIBusId(char* name, int size, int device) {
    std::snprintf(name, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device));
    return cudaSuccess;
}

}  // extern "C"
