#include "launcher/host/gpu_count.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "agent/evidence/gpu_check.h"
#include "agent/process/side_process.h"
#include "launcher/host/program_output.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr Duration silent_wait = 5s;

}  // namespace

bool has_gpu_driver(const Environment& environment) {
    return agent::has_gpu_driver(value_or_empty(environment, "MUSTER_NVML_LIBRARY"));
}

Result<std::vector<GpuDevice>> read_gpus(std::string_view output, Duration limit) {
    std::vector<GpuDevice> devices;
    for (const auto line : split(output, '\n')) {
        const auto words = split(line, ' ');
        if (words[0] == "note") return Error{Errc::io, std::string(line.substr(line.find(' ') + 1))};
        if (words[0] == "gpu" && words.size() == 4) devices.push_back({.uuid = std::string(words[2]), .mig_uuids = {}});
        if (devices.empty()) continue;
        if (words[0] == "address" && words.size() == 2) devices.back().pci_address = std::string(words[1]);
        if (words[0] == "partitioned") devices.back().mig_enabled = true;
        if (words[0] == "part" && words.size() == 2) devices.back().mig_uuids.emplace_back(words[1]);
    }
    if (!output.ends_with("end\n"))
        return Error{Errc::timed_out, cat("muster-gpus has not listed all GPUs within its ", describe(limit),
                                          ": the NVIDIA driver hangs, or has crashed it; run nvidia-smi on this node")};
    return devices;
}

Result<std::vector<GpuDevice>> ask_for_gpus(Duration limit) {
    auto next_word = std::chrono::steady_clock::now() + std::min(silent_wait, limit / 2);
    const auto say_why = [&] {
        if (std::chrono::steady_clock::now() < next_word) return false;
        log(LogLevel::warning, "waiting up to ", describe(limit),
            " for the NVIDIA driver, which has not listed its GPUs yet");
        next_word = Instant::max();
        return false;
    };
    const auto output = program_output({agent::side_program("muster-gpus")}, limit, say_why);
    return read_gpus(output.value_or(std::string()), limit);
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
