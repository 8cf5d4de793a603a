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

}  // namespace

template <class Function>
void GpuDriver::find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(symbol(name));
}

std::optional<std::vector<std::string>> GpuDriver::parts_of(Device device) const {
    unsigned current = 0;
    unsigned pending = 0;
    if (mig_mode == nullptr || mig_mode(device, &current, &pending) != success || current != 1) return std::nullopt;
    std::vector<std::string> parts;
    unsigned count = 0;
    if (mig_count_max == nullptr || mig_by_index == nullptr || mig_count_max(device, &count) != success) return parts;
    for (unsigned index = 0; index < count; ++index) {
        Device part = nullptr;
        if (mig_by_index(device, index, &part) == success) parts.push_back(uuid_of(part));
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
    driver.find("nvmlInit_v2", driver.init_);
    driver.find("nvmlShutdown", driver.shutdown);
    driver.find("nvmlErrorString", driver.error_string_);
    driver.find("nvmlDeviceGetCount_v2", driver.device_count);
    driver.find("nvmlDeviceGetHandleByIndex_v2", driver.device_by_index);
    driver.find("nvmlDeviceGetUUID", driver.uuid_);
    driver.find("nvmlDeviceGetMigMode", driver.mig_mode);
    driver.find("nvmlDeviceGetMaxMigDeviceCount", driver.mig_count_max);
    driver.find("nvmlDeviceGetMigDeviceHandleByIndex", driver.mig_by_index);
    driver.find("nvmlDeviceGetPciInfo_v3", driver.pci_);
    driver.find("nvmlDeviceGetMemoryInfo", driver.memory_);
    driver.find("nvmlDeviceGetComputeRunningProcesses_v3", driver.processes_);
    if (driver.processes_ == nullptr) driver.find("nvmlDeviceGetComputeRunningProcesses_v2", driver.processes_);
    if (driver.init_ == nullptr || driver.device_count == nullptr || driver.device_by_index == nullptr ||
        driver.uuid_ == nullptr)
        return Error{Errc::unsupported, cat(library, " is not a known NVML library")};
    if (const auto failed = driver.init_(); failed != success)
        return Error{Errc::io, cat("nvmlInit: ", driver.words(failed))};
    return driver;
}

std::string GpuDriver::words(int failed) const {
    return error_string_ != nullptr ? std::string(error_string_(failed)) : cat("error ", failed);
}

std::string GpuDriver::uuid_of(Device device) const {
    std::array<char, uuid_bytes> text{};
    if (uuid_(device, text.data(), static_cast<unsigned>(text.size())) != success) return {};
    return text.data();
}

std::string GpuDriver::pci_address_of(Device device) const {
    Pci pci{};
    if (pci_ == nullptr || pci_(device, &pci) != success) return {};
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    return text.data();
}

std::vector<GpuProcess> GpuDriver::processes_of(Device device) const {
    std::vector<Process> found(processes_max);
    auto count = processes_max;
    if (processes_ == nullptr || processes_(device, &count, found.data()) != success) return {};
    std::vector<GpuProcess> out;
    for (unsigned i = 0; i < count && i < processes_max; ++i)
        out.push_back({found[i].pid, found[i].used == not_available ? 0 : found[i].used});
    return out;
}

std::uint64_t GpuDriver::used_bytes_of(Device device) const {
    Memory memory{};
    return memory_ != nullptr && memory_(device, &memory) == success ? memory.used : 0;
}

}  // namespace muster::agent
