#include "worker_runtime/communicator/profile_range.h"

#include <dlfcn.h>
#include <stdlib.h>

namespace muster::runtime {

namespace {

const ProfilerLibrary* open_library(const char* name) {
    void* const opened = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) return nullptr;
    static ProfilerLibrary library;
    library.start = reinterpret_cast<decltype(library.start)>(::dlsym(opened, "nvtxRangeStartA"));
    library.end = reinterpret_cast<decltype(library.end)>(::dlsym(opened, "nvtxRangeEnd"));
    return library.start != nullptr && library.end != nullptr ? &library : nullptr;
}

const ProfilerLibrary* find_library() {
    if (const char* const named = ::getenv("MUSTER_NVTX_LIBRARY")) return open_library(named);
    for (const char* const usual : {"libnvtx3interop.so.1", "libnvToolsExt.so.1"}) {
        if (const auto* const found = open_library(usual)) return found;
    }
    return nullptr;
}

}  // namespace

const ProfilerLibrary* profiler_library() {
    static const ProfilerLibrary* const library = find_library();
    return library;
}

}  // namespace muster::runtime
