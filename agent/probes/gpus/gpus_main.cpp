// muster-gpus: prints the use of this host's GPUs, one line for each GPU, its MIG devices and each process on it:
//
//     gpu INDEX UUID USED_BYTES
//     address PCI_ADDRESS
//     partitioned
//     part UUID
//     process PID USED_BYTES
//     end
//
// Output without "end" is no answer, but for a line "note WHY". The order is NVML's. With --busy a GPU has only "gpu
// INDEX UUID 0" and "busy PERCENT": the share of the driver's last sample (1/6 s to 1 s) in which a kernel ran, if it
// reports one. With --health it prints what `muster doctor` judges (gpu_health.h), and "end". With --test UUID
// PROGRAM... it runs a program that tests this GPU, and watches it (gpu_watch.h). MUSTER_NVML_LIBRARY may name the
// library. A separate program, because a faulty driver may hang.
//
// Exit codes: 0; 1 if there is no driver, or it does not answer.
#include <stdio.h>
#include <stdlib.h>

#include <string>
#include <string_view>
#include <vector>

#include "agent/probes/gpus/gpu_driver.h"
#include "agent/probes/gpus/gpu_health.h"
#include "agent/probes/gpus/gpu_watch.h"
#include "rendezvous/base/system/end_with_parent.h"

namespace {

struct Utilization {  // nvmlUtilization_t
    unsigned gpu, memory;
};

/// `words` are the arguments of --test; none: --health.
int print_look(const muster::Result<muster::agent::GpuDriver>& driver, std::vector<std::string> words) {
    if (!driver)
        ::printf("failure\tkind=library\ttext=%s\n", driver.error().context.c_str());
    else if (words.empty())
        muster::agent::print_gpu_health(*driver);
    else
        muster::agent::watch_gpu_test(*driver, words[0], {words.begin() + 1, words.end()});
    ::puts("end");
    return driver ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    using muster::agent::GpuDriver;
    const std::string_view order = argc > 1 ? argv[1] : "";
    const bool looks = order == "--health" || (order == "--test" && argc > 3);
    muster::end_with_parent();
    const char* const named = ::getenv("MUSTER_NVML_LIBRARY");
    auto driver = GpuDriver::load(named != nullptr && *named != '\0' ? named : muster::agent::gpu_library);
    if (looks) return print_look(driver, {argv + 2, argv + argc});
    const bool is_busy = order == "--busy";
    unsigned count = 0;
    std::string trouble;
    if (!driver)
        trouble = driver.error().context;
    else if (const int failed = driver->device_count(&count); failed != GpuDriver::success)
        trouble = "nvmlDeviceGetCount: " + driver->words(failed);
    if (!trouble.empty()) {
        ::printf("note %s\n", trouble.c_str());
        return 1;
    }
    for (unsigned index = 0; index < count; ++index) {
        GpuDriver::Device device = nullptr;
        if (driver->device_by_index(index, &device) != GpuDriver::success) continue;
        const auto used_bytes = is_busy ? 0 : driver->used_bytes_of(device);
        ::printf("gpu %u %s %llu\n", index, driver->uuid_of(device).c_str(),
                 static_cast<unsigned long long>(used_bytes));
        if (is_busy) {
            if (Utilization shares{}; driver->ask("nvmlDeviceGetUtilizationRates", device, &shares))
                ::printf("busy %u\n", shares.gpu);
            continue;
        }
        if (const auto address = driver->pci_address_of(device); !address.empty())
            ::printf("address %s\n", address.c_str());
        const auto parts = driver->parts_of(device);
        if (parts) ::puts("partitioned");
        for (const auto& part : parts.value_or(std::vector<std::string>())) ::printf("part %s\n", part.c_str());
        for (const auto& process : driver->processes_of(device))
            ::printf("process %u %llu\n", process.pid, static_cast<unsigned long long>(process.used_bytes));
    }
    ::puts("end");
    return 0;
}
