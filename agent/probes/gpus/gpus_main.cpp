// muster-gpus: prints the use of this host's GPUs, one line for each GPU and for each process on it:
//
//     gpu INDEX UUID USED_BYTES
//     process PID USED_BYTES
//
// The order is NVML's. MUSTER_NVML_LIBRARY may name the library. A separate program, because a faulty driver may hang.
//
// Exit codes: 0; 1 if there is no driver, or it does not answer.
#include <stdio.h>
#include <stdlib.h>

#include "agent/probes/gpus/gpu_driver.h"

int main() {
    using muster::agent::GpuDriver;
    const char* const named = ::getenv("MUSTER_NVML_LIBRARY");
    auto driver = GpuDriver::load(named != nullptr && *named != '\0' ? named : muster::agent::gpu_library);
    unsigned count = 0;
    if (!driver || driver->device_count(&count) != GpuDriver::success) {
        ::printf("note %s\n", driver ? "nvmlDeviceGetCount failed" : driver.error().context.c_str());
        return 1;
    }
    for (unsigned index = 0; index < count; ++index) {
        GpuDriver::Device device = nullptr;
        if (driver->device_by_index(index, &device) != GpuDriver::success) continue;
        ::printf("gpu %u %s %llu\n", index, driver->uuid_of(device).c_str(),
                 static_cast<unsigned long long>(driver->used_bytes_of(device)));
        for (const auto& process : driver->processes_of(device))
            ::printf("process %u %llu\n", process.pid, static_cast<unsigned long long>(process.used_bytes));
    }
    return 0;
}
