#include "launcher/gpu_count.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "rendezvous/base/text.h"

namespace muster::launcher {

namespace {

// The few declarations of NVML that are used; its ABI has been stable since 2012 (MIG: since 2020).
using NvmlReturn = int;
using NvmlDevice = void*;
constexpr NvmlReturn nvml_success = 0;
constexpr std::size_t nvml_uuid_bytes = 96;

class Nvml {
  public:
    static Result<Nvml> load(const std::string& library) {
        Nvml nvml;
        nvml.handle_ = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
        if (nvml.handle_ == nullptr)
            return Error{Errc::not_found, cat("there is no ", library, " here, so no NVIDIA driver")};
        nvml.find("nvmlInit_v2", nvml.init);
        nvml.find("nvmlShutdown", nvml.shutdown);
        nvml.find("nvmlErrorString", nvml.error_string);
        nvml.find("nvmlDeviceGetCount_v2", nvml.device_count);
        nvml.find("nvmlDeviceGetHandleByIndex_v2", nvml.device_by_index);
        nvml.find("nvmlDeviceGetUUID", nvml.uuid);
        nvml.find("nvmlDeviceGetMigMode", nvml.mig_mode);
        nvml.find("nvmlDeviceGetMaxMigDeviceCount", nvml.mig_count_max);
        nvml.find("nvmlDeviceGetMigDeviceHandleByIndex", nvml.mig_by_index);
        if (nvml.init == nullptr || nvml.device_count == nullptr || nvml.device_by_index == nullptr ||
            nvml.uuid == nullptr)
            return Error{Errc::unsupported, cat(library, " is no NVML that muster knows")};
        if (const auto failed = nvml.init(); failed != nvml_success)
            return Error{Errc::io, cat("nvmlInit: ", nvml.words(failed))};
        return nvml;
    }

    [[nodiscard]] std::string words(NvmlReturn failed) const {
        return error_string != nullptr ? std::string(error_string(failed)) : cat("error ", failed);
    }

    [[nodiscard]] std::string uuid_of(NvmlDevice device) const {
        std::array<char, nvml_uuid_bytes> text{};
        if (uuid(device, text.data(), static_cast<unsigned>(text.size())) != nvml_success) return {};
        return text.data();
    }

    NvmlReturn (*init)() = nullptr;
    NvmlReturn (*shutdown)() = nullptr;
    const char* (*error_string)(NvmlReturn) = nullptr;
    NvmlReturn (*device_count)(unsigned*) = nullptr;
    NvmlReturn (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
    NvmlReturn (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
    NvmlReturn (*mig_mode)(NvmlDevice, unsigned* current, unsigned* pending) = nullptr;
    NvmlReturn (*mig_count_max)(NvmlDevice, unsigned*) = nullptr;
    NvmlReturn (*mig_by_index)(NvmlDevice, unsigned, NvmlDevice*) = nullptr;

  private:
    template <class Function>
    void find(const char* name, Function*& function) {
        function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    }

    void* handle_ = nullptr;  // never unloaded: the driver's threads may live in it
};

GpuDevice describe_device(const Nvml& nvml, NvmlDevice device) {
    GpuDevice described{.uuid = nvml.uuid_of(device), .mig_uuids = {}, .mig_enabled = false};
    unsigned current = 0;
    unsigned pending = 0;
    if (nvml.mig_mode == nullptr || nvml.mig_mode(device, &current, &pending) != nvml_success || current != 1)
        return described;
    described.mig_enabled = true;
    unsigned count = 0;
    if (nvml.mig_count_max == nullptr || nvml.mig_by_index == nullptr ||
        nvml.mig_count_max(device, &count) != nvml_success)
        return described;
    for (unsigned index = 0; index < count; ++index) {
        NvmlDevice mig = nullptr;
        if (nvml.mig_by_index(device, index, &mig) == nvml_success) described.mig_uuids.push_back(nvml.uuid_of(mig));
    }
    return described;
}

/// What one entry of CUDA_VISIBLE_DEVICES stands for: a device's UUID, or nothing.
std::string resolve_visible(std::string_view entry, const std::vector<GpuDevice>& devices) {
    if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) {
        std::string found;
        for (const auto& device : devices) {
            std::vector<std::string> names = device.mig_uuids;
            names.push_back(device.uuid);
            for (const auto& name : names) {
                if (!name.starts_with(entry)) continue;
                if (!found.empty()) return {};  // fits two devices
                found = name;
            }
        }
        // The names of drivers before R470, "MIG-GPU-<uuid>/<gi>/<ci>", cannot be looked up; CUDA will judge them.
        if (found.empty() && entry.starts_with("MIG-GPU-")) found = entry;
        return found;
    }
    if (entry.starts_with('+')) entry.remove_prefix(1);
    std::size_t index = 0;
    // As strtoul: digits count, what follows them does not.
    if (std::from_chars(entry.data(), entry.data() + entry.size(), index).ec != std::errc{}) return {};
    return index < devices.size() ? cat("index ", index) : std::string{};
}

}  // namespace

Result<std::vector<GpuDevice>> list_gpus(const std::string& library) {
    auto loaded = Nvml::load(library);
    if (!loaded) return loaded.error();
    const auto& nvml = *loaded;
    unsigned count = 0;
    std::vector<GpuDevice> devices;
    const auto failed = nvml.device_count(&count);
    for (unsigned index = 0; failed == nvml_success && index < count; ++index) {
        NvmlDevice device = nullptr;
        // A GPU that fell off the bus stays in the count; workers could not use it either.
        if (nvml.device_by_index(index, &device) == nvml_success) devices.push_back(describe_device(nvml, device));
    }
    if (nvml.shutdown != nullptr) nvml.shutdown();
    if (failed != nvml_success) return Error{Errc::io, cat("nvmlDeviceGetCount: ", nvml.words(failed))};
    return devices;
}

std::uint32_t visible_gpu_count(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible) {
    if (!visible) {
        std::size_t count = 0;
        for (const auto& device : devices) count += device.mig_enabled ? device.mig_uuids.size() : 1;
        return static_cast<std::uint32_t>(count);
    }
    std::vector<std::string> seen;
    for (const auto entry : split(*visible, ',')) {
        auto device = resolve_visible(trim(entry), devices);
        if (device.empty()) break;
        if (std::find(seen.begin(), seen.end(), device) != seen.end()) return 0;
        seen.push_back(std::move(device));
    }
    return static_cast<std::uint32_t>(seen.size());
}

std::uint32_t apparent_gpu_count(std::optional<std::string_view> visible) {
    constexpr std::uint32_t looked_for_max = 64;
    std::uint32_t count = 0;
    while (count < looked_for_max && ::access(cat("/dev/nvidia", count).c_str(), F_OK) == 0) ++count;
    if (!visible || count == 0) return count;
    return std::min(count, visible->empty() ? 0U : static_cast<std::uint32_t>(split(*visible, ',').size()));
}

}  // namespace muster::launcher
