#include "worker_runtime/shared_memory/host_memory.h"

#include "muster/muster_group.h"
#include "worker_runtime/capi/failure.h"

using namespace muster;
using namespace muster::capi;

extern "C" {

muster_status muster_host_memory_allocate(size_t size_bytes, void** data) {
    return guarded(__func__, [&]() -> Result<void> {
        if (data == nullptr) return invalid("`data` is NULL");
        *data = nullptr;
        *data = MUSTER_TRY(runtime::HostMemory::of_process().allocate(size_bytes));
        return {};
    });
}

muster_status muster_host_memory_release(void* data) {
    return guarded(__func__, [&]() -> Result<void> {
        if (data == nullptr || runtime::HostMemory::of_process().release(data)) return {};
        return invalid("`data` is not from muster_host_memory_allocate(), or was released already");
    });
}
}
