#include "agent/probes/gpus/gpu_health.h"

#include <fcntl.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Device = GpuDriver::Device;

constexpr int sample_count = 10;
constexpr auto sample_pause = std::chrono::milliseconds(20);

// Numbers and layouts of nvml.h, which are part of the library's ABI.
constexpr unsigned recovery_action_field = 230;
constexpr int corrected = 0, uncorrected = 1;
constexpr int since_the_driver_was_loaded = 0;
constexpr int sram = 7;
constexpr int no_permission = 4;  // another job's GPU
constexpr unsigned links_max = 36;

struct FieldValue {
    unsigned field, scope;
    long long timestamp, latency_us;
    int type, result;
    union {
        unsigned u32;
        unsigned long long u64;
    } value;
};

struct FabricInfo {  // version 2
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

struct Sampled {
    unsigned index = 0;
    Device device = nullptr;
    std::string line;
    std::array<int, 4> slowed{};
};

std::string field(const char* name, std::uint64_t value) {
    return cat('\t', name, '=', value);
}

}  // namespace

std::string gpu_memory_health(const GpuDriver& driver, Device device) {
    unsigned long long memory[3] = {};  // total, free, used
    std::string out;
    if (driver.ask("nvmlDeviceGetMemoryInfo", device, &memory[0])) out += field("memory", memory[0]);
    unsigned rows_corrected = 0, rows_uncorrected = 0, pending = 0, failed = 0;
    if (driver.ask("nvmlDeviceGetRemappedRows", device, &rows_corrected, &rows_uncorrected, &pending, &failed))
        out += field("rows-pending", pending) + field("rows-failed", failed);
    unsigned long long errors = 0;
    if (driver.ask("nvmlDeviceGetTotalEccErrors", device, uncorrected, since_the_driver_was_loaded, &errors))
        out += field("ecc-uncorrected", errors);
    if (driver.ask("nvmlDeviceGetMemoryErrorCounter", device, corrected, since_the_driver_was_loaded, sram, &errors))
        out += field("sram-corrected", errors);
    return out;
}

unsigned long long clock_reasons(const GpuDriver& driver, Device device) {
    const char* name = "nvmlDeviceGetCurrentClocksEventReasons";
    if (driver.symbol(name) == nullptr) name = "nvmlDeviceGetCurrentClocksThrottleReasons";  // before 535
    unsigned long long reasons = 0;
    return driver.ask(name, device, &reasons) ? reasons : 0;
}

namespace {

std::string links_of(const GpuDriver& driver, Device device) {
    unsigned active_count = 0;
    bool has_links = false;
    for (unsigned link = 0; link < links_max; ++link) {
        unsigned active = 0;
        if (!driver.ask("nvmlDeviceGetNvLinkState", device, link, &active)) break;
        has_links = true;
        active_count += active == 1 ? 1 : 0;
    }
    std::string out = has_links ? field("nvlinks", active_count) : std::string();
    FabricInfo fabric{};
    static_assert(sizeof fabric == 36);
    fabric.version = sizeof fabric | 2U << 24;
    if (driver.ask("nvmlDeviceGetGpuFabricInfoV", device, &fabric))
        out += field("fabric", fabric.state) + field("fabric-health", fabric.health) +
               field("fabric-status", static_cast<unsigned>(fabric.status));
    FieldValue action{};
    action.field = recovery_action_field;
    if (driver.ask("nvmlDeviceGetFieldValues", device, 1, &action) && action.result == GpuDriver::success)
        out += field("recovery", action.value.u32);
    return out;
}

void sample_clocks(const GpuDriver& driver, std::vector<Sampled>& gpus) {
    for (int sample = 0; sample < sample_count && !gpus.empty(); ++sample) {
        if (sample > 0) std::this_thread::sleep_for(sample_pause);
        for (auto& gpu : gpus) {
            const auto reasons = clock_reasons(driver, gpu.device);
            for (std::size_t i = 0; i < slow_reasons.size(); ++i)
                if ((reasons & slow_reasons[i].bit) != 0) ++gpu.slowed[i];
        }
    }
}

void print_versions(const GpuDriver& driver) {
    std::array<char, 96> text{};
    if (driver.ask("nvmlSystemGetDriverVersion", text.data(), static_cast<unsigned>(text.size())))
        std::printf("version\tof=NVIDIA driver\tis=%s\n", text.data());
    int cuda = 0;
    if (driver.ask("nvmlSystemGetCudaDriverVersion_v2", &cuda))
        std::printf("version\tof=CUDA of the driver\tis=%d.%d\n", cuda / 1000, cuda % 1000 / 10);
}

unsigned device_file_count() {
    constexpr unsigned files_max = 64;
    unsigned count = 0;
    for (unsigned i = 0; i < files_max; ++i)
        // One that a device cgroup forbids is another job's.
        if (FileDescriptor(::open(cat("/dev/nvidia", i).c_str(), O_RDONLY | O_CLOEXEC)).valid()) ++count;
    return count;
}

}  // namespace

void print_gpu_health(const GpuDriver& driver) {
    print_versions(driver);
    unsigned count = 0;
    if (const auto failed = driver.device_count(&count); failed != GpuDriver::success) {
        std::printf("failure\ttext=nvmlDeviceGetCount: %s\n", driver.words(failed).c_str());
        return;
    }
    std::printf("count\tdevice-files=%u\n", device_file_count());
    std::vector<Sampled> gpus;
    for (unsigned index = 0; index < count; ++index) {
        Device device = nullptr;
        if (const auto failed = driver.device_by_index(index, &device); failed != GpuDriver::success) {
            if (failed == no_permission) continue;
            std::printf("lost\tindex=%u\ttext=%s\n", index, driver.words(failed).c_str());
            std::fflush(stdout);  // the next one may hang
            continue;
        }
        gpus.push_back({index,
                        device,
                        cat("gpu\tindex=", index, "\tuuid=", driver.uuid_of(device), "\tbus=",
                            driver.pci_address_of(device), gpu_memory_health(driver, device), links_of(driver, device)),
                        {}});
    }
    sample_clocks(driver, gpus);
    for (auto& gpu : gpus) {
        for (std::size_t i = 0; i < slow_reasons.size(); ++i)
            gpu.line += field(slow_reasons[i].field, static_cast<std::uint64_t>(gpu.slowed[i]));
        std::printf("%s\n", gpu.line.c_str());
    }
}

}  // namespace muster::agent
