#include "agent/diagnosis/gpu_use.h"

#include <algorithm>
#include <utility>

#include "agent/diagnosis/visible_gpus.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::agent {

namespace {

constexpr std::size_t processes_max = 512;

std::uint64_t unclaimed(const GpuUse& gpu) {
    auto left = gpu.used_bytes;
    for (const auto& process : gpu.processes) left -= std::min(left, process.used_bytes);
    return left;
}

std::string in_mib(std::uint64_t bytes) {
    return cat(bytes >> 20, " MiB");
}

}  // namespace

std::vector<GpuUse> read_gpu_use(std::string_view output, std::optional<std::string_view> visible) {
    if (!output.ends_with("end\n")) return {};
    std::vector<GpuUse> gpus;
    bool is_of_last = false;  // Not after a line of a GPU that is left out.
    for (const auto line : split(output, '\n')) {
        const auto words = split(line, ' ');
        if (words.size() == 4 && words[0] == "gpu") {
            GpuUse gpu;
            gpu.uuid = words[2];
            is_of_last = parse_number(words[1], gpu.index) && parse_number(words[3], gpu.used_bytes) &&
                         gpus.size() < native::gpus_max;
            if (is_of_last) gpus.push_back(gpu);
        } else if (words.size() == 3 && words[0] == "process" && is_of_last) {
            GpuUse::Process process;
            auto& processes = gpus.back().processes;
            const bool read = parse_number(words[1], process.pid) && parse_number(words[2], process.used_bytes);
            if (read && processes.size() < processes_max) processes.push_back(process);
        } else if (words.size() == 2 && words[0] == "busy" && is_of_last) {
            if (std::uint32_t percent = 0; parse_number(words[1], percent) && percent <= 100)
                gpus.back().busy_percent = percent;
        }
    }
    std::vector<std::string> uuids;
    for (const auto& gpu : gpus) uuids.push_back(gpu.uuid);
    const auto shown = are_visible(uuids, visible);
    std::vector<GpuUse> found;
    for (std::size_t i = 0; i < gpus.size(); ++i)
        if (shown[i]) found.push_back(std::move(gpus[i]));
    return found;
}

void GpuWatch::set_baseline(const std::vector<GpuUse>& gpus) {
    for (const auto& gpu : gpus) baseline_[gpu.uuid] = unclaimed(gpu);
}

void GpuWatch::lower_baseline(const GpuBaseline& earlier) {
    for (const auto& [uuid, bytes] : earlier)
        if (const auto found = baseline_.find(uuid); found != baseline_.end())
            found->second = std::min(found->second, bytes);
}

std::vector<std::string> GpuWatch::foreign(const std::vector<GpuUse>& gpus,
                                           const std::function<std::string(std::int32_t)>& name_of) {
    std::vector<std::string> lines;
    for (const auto& gpu : gpus) {
        for (const auto& process : gpu.processes) {
            const auto name = name_of(process.pid);
            const bool shares_for_others = name.starts_with("nvidia-cuda-mps");
            if (shares_for_others || !named_.emplace(gpu.uuid, process.pid).second) continue;
            const auto who = name.empty() ? std::string("not visible from here") : name;
            const auto how_much = process.used_bytes > 0 ? cat(" with ", in_mib(process.used_bytes)) : std::string();
            lines.push_back(cat("GPU ", gpu.index, " (", gpu.uuid, ") is used by another process, pid ", process.pid,
                                " (", who, ')', how_much));
        }
    }
    return lines;
}

std::string GpuWatch::still_held(const std::vector<GpuUse>& gpus) const {
    std::string out;
    for (const auto& gpu : gpus) {
        const auto before = baseline_.find(gpu.uuid);
        const auto now = unclaimed(gpu);
        if (before == baseline_.end() || now <= before->second + slack_bytes) continue;
        out += cat(out.empty() ? "" : ", ", in_mib(now - before->second), " of GPU ", gpu.index);
    }
    return out;
}

}  // namespace muster::agent
