#include "agent/probes/gpus/gpu_driver.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t uuid_bytes = 96;
constexpr unsigned processes_max = 512;
constexpr unsigned long long not_available = ~0ULL;

struct Memory {
    unsigned long long total, free, used;
};

struct Pci {  // of nvmlDeviceGetPciInfo_v3
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct Process {  // of nvmlDeviceGetComputeRunningProcesses_v2 and _v3
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

}  // namespace

std::optional<std::vector<std::string>> GpuDriver::parts_of(Device device) const {
    unsigned current = 0;
    unsigned pending = 0;
    if (!ask("nvmlDeviceGetMigMode", device, &current, &pending) || current != 1) return std::nullopt;
    std::vector<std::string> parts;
    unsigned count = 0;
    if (!ask("nvmlDeviceGetMaxMigDeviceCount", device, &count)) return parts;
    for (unsigned index = 0; index < count; ++index) {
        Device part = nullptr;
        if (ask("nvmlDeviceGetMigDeviceHandleByIndex", device, index, &part)) parts.push_back(uuid_of(part));
    }
    return parts;
}

void* GpuDriver::symbol(const char* name) const {
    return ::dlsym(handle_, name);
}

Result<GpuDriver> GpuDriver::load(const std::string& library) {
    GpuDriver driver;
    driver.handle_ = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (driver.handle_ == nullptr)
        return Error{Errc::not_found, cat(library, " was not found: no NVIDIA driver is installed")};
    int (*init)() = nullptr;
    driver.find("nvmlInit_v2", init);
    driver.find("nvmlDeviceGetCount_v2", driver.device_count);
    driver.find("nvmlDeviceGetHandleByIndex_v2", driver.device_by_index);
    if (init == nullptr || driver.device_count == nullptr || driver.device_by_index == nullptr ||
        driver.symbol("nvmlDeviceGetUUID") == nullptr)
        return Error{Errc::unsupported, cat(library, " is not a known NVML library")};
    if (const auto failed = init(); failed != success) return Error{Errc::io, cat("nvmlInit: ", driver.words(failed))};
    return driver;
}

std::string GpuDriver::words(int failed) const {
    const char* (*error_string)(int) = nullptr;
    find("nvmlErrorString", error_string);
    return error_string != nullptr ? std::string(error_string(failed)) : cat("error ", failed);
}

std::string GpuDriver::uuid_of(Device device) const {
    std::array<char, uuid_bytes> text{};
    if (!ask("nvmlDeviceGetUUID", device, text.data(), static_cast<unsigned>(text.size()))) return {};
    return text.data();
}

std::string GpuDriver::pci_address_of(Device device) const {
    Pci pci{};
    if (!ask("nvmlDeviceGetPciInfo_v3", device, &pci)) return {};
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    return text.data();
}

std::vector<GpuProcess> GpuDriver::processes_of(Device device) const {
    std::vector<Process> found(processes_max);
    auto count = processes_max;
    const char* name = "nvmlDeviceGetComputeRunningProcesses_v3";
    if (symbol(name) == nullptr) name = "nvmlDeviceGetComputeRunningProcesses_v2";
    if (!ask(name, device, &count, found.data())) return {};
    std::vector<GpuProcess> out;
    for (unsigned i = 0; i < count && i < processes_max; ++i)
        out.push_back({found[i].pid, found[i].used == not_available ? 0 : found[i].used});
    return out;
}

std::uint64_t GpuDriver::used_bytes_of(Device device) const {
    Memory memory{};
    return ask("nvmlDeviceGetMemoryInfo", device, &memory) ? memory.used : 0;
}

}  // namespace muster::agent
