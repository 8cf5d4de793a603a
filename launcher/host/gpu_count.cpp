#include "launcher/host/gpu_count.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "agent/probes/gpus/gpu_driver.h"
#include "agent/process/side_process.h"
#include "launcher/host/program_output.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using agent::GpuDriver;

constexpr Duration driver_limit = 5s;  // a driver that is slow to begin with takes one or two

GpuDevice describe_device(const GpuDriver& nvml, GpuDriver::Device device) {
    auto parts = nvml.parts_of(device);
    return {.uuid = nvml.uuid_of(device),
            .mig_uuids = parts.value_or(std::vector<std::string>()),
            .mig_enabled = parts.has_value(),
            .pci_address = nvml.pci_address_of(device)};
}

}  // namespace

Result<std::vector<GpuDevice>> list_gpus(const std::string& library) {
    const auto nvml = MUSTER_TRY(GpuDriver::load(library));
    unsigned count = 0;
    std::vector<GpuDevice> devices;
    const auto failed = nvml.device_count(&count);
    for (unsigned index = 0; failed == GpuDriver::success && index < count; ++index) {
        GpuDriver::Device device = nullptr;
        // NVML still counts a GPU that fell off the bus. Workers cannot use it.
        if (nvml.device_by_index(index, &device) == GpuDriver::success)
            devices.push_back(describe_device(nvml, device));
    }
    nvml.ask("nvmlShutdown");
    if (failed != GpuDriver::success) return Error{Errc::io, cat("nvmlDeviceGetCount: ", nvml.words(failed))};
    return devices;
}

Result<std::vector<GpuDevice>> read_gpus(std::string_view output) {
    std::vector<GpuDevice> devices;
    for (const auto line : split(output, '\n')) {
        const auto words = split(line, ' ');
        if (words[0] == "note") return Error{Errc::io, std::string(line.substr(line.find(' ') + 1))};
        if (words[0] == "gpu" && words.size() == 4) devices.push_back({.uuid = std::string(words[2]), .mig_uuids = {}});
        if (devices.empty()) continue;
        if (words[0] == "partitioned") devices.back().mig_enabled = true;
        if (words[0] == "part" && words.size() == 2) devices.back().mig_uuids.emplace_back(words[1]);
    }
    if (!output.ends_with("end\n"))
        return Error{Errc::timed_out, cat("the NVIDIA driver has not listed all GPUs within ", describe(driver_limit),
                                          "; run nvidia-smi on this node")};
    return devices;
}

Result<std::vector<GpuDevice>> ask_for_gpus() {
    const auto output = program_output({agent::side_program("muster-gpus")}, driver_limit, [] { return false; });
    if (!output || output->empty())
        return Error{Errc::timed_out, cat("the NVIDIA driver has not listed the GPUs within ", describe(driver_limit))};
    return read_gpus(*output);
}

std::size_t host_gpu_count(const std::string& root) {
    std::size_t most = 0;
    for (const auto* directory : {"/sys/bus/pci/drivers/nvidia", "/proc/driver/nvidia/gpus"}) {
        std::error_code failure;
        std::size_t count = 0;
        std::filesystem::directory_iterator entry(cat(root, directory), failure);
        for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure))
            if (entry->path().filename().string().find(':') != std::string::npos) ++count;  // a PCI address
        most = std::max(most, count);
    }
    return most;
}

std::uint32_t visible_gpu_count(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible) {
    return static_cast<std::uint32_t>(visible_gpus(devices, visible).size());
}

std::vector<std::size_t> gpus_of_workers(const std::vector<GpuDevice>& devices, std::optional<std::string_view> visible,
                                         std::uint32_t worker_count) {
    auto gpus = visible_gpus(devices, visible);
    if (gpus.size() > worker_count) gpus.resize(worker_count);
    std::erase_if(gpus, [&](std::size_t gpu) { return gpu >= devices.size() || devices[gpu].mig_enabled; });
    std::ranges::sort(gpus);
    gpus.erase(std::ranges::unique(gpus).begin(), gpus.end());
    return gpus;
}

std::uint32_t apparent_gpu_count(std::optional<std::string_view> visible) {
    constexpr std::uint32_t gpus_probed_max = 64;
    std::uint32_t count = 0;
    while (count < gpus_probed_max && ::access(cat("/dev/nvidia", count).c_str(), F_OK) == 0) ++count;
    if (!visible || count == 0) return count;
    return std::min(count, visible->empty() ? 0U : static_cast<std::uint32_t>(split(*visible, ',').size()));
}

}  // namespace muster::launcher
