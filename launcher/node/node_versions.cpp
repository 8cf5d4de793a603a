#include "launcher/node/node_versions.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "launcher/host/gpu_count.h"
#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/system/python_packages.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::launcher {

namespace {

/// Those that may differ: names of this node's devices and files, and what NCCL prints.
bool belongs_to_one_node(std::string_view name) {
    constexpr std::array<std::string_view, 6> own{"_IFNAME", "_HCA", "_FILE", "_DEBUG", "_SUBSYS", "_GID_INDEX"};
    return std::ranges::any_of(own, [name](auto ending) { return name.ends_with(ending); });
}

std::string nccl_settings(const Environment& environment) {
    std::string out;
    for (auto at = environment.lower_bound("NCCL_"); at != environment.end() && at->first.starts_with("NCCL_"); ++at)
        if (!belongs_to_one_node(at->first)) out += cat(out.empty() ? "" : " ", at->first, '=', at->second);
    if (out.empty()) return "none";
    if (out.size() <= native::name_bytes_max) return out;
    // What differs behind the cut must differ here too: FNV-1a, equal on all machines.
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char c : out) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    constexpr std::size_t room_for_the_hash = 32;
    return cat(front_of(out, native::name_bytes_max - room_for_the_hash), "... hash ", hash);
}

}  // namespace

std::vector<native::VersionFact> node_versions(const Environment& environment, const std::string& root) {
    std::vector<native::VersionFact> versions;
    const auto add = [&versions](const char* component, const std::string& version) {
        const auto text = printable_line(version);
        if (!text.empty()) versions.push_back({component, std::string(front_of(text, native::name_bytes_max))});
    };
    add("muster", MUSTER_VERSION);
    utsname kernel{};
    if (::uname(&kernel) == 0) add("the kernel", kernel.release);
    add("the NVIDIA driver", first_line(root + "/sys/module/nvidia/version"));
    if (const auto gpus = host_gpu_count(root); gpus > 0) add("the GPUs", cat(gpus, gpus == 1 ? " GPU" : " GPUs"));
    const std::filesystem::path python(value_or_empty(environment, "PYTHON_EXEC"));
    auto prefix = python_prefix(python.parent_path().string());
    if (prefix.empty()) prefix = value_or_empty(environment, "VIRTUAL_ENV");
    if (prefix.empty()) prefix = value_or_empty(environment, "CONDA_PREFIX");
    if (prefix.empty()) prefix = python_prefix(value_or_empty(environment, "PATH"));
    for (const auto& [name, version] : python_packages(prefix)) {
        if (name == "torch") add("PyTorch", version);
        if (name.starts_with("nvidia_cuda_runtime")) add("CUDA", version);
        if (name.starts_with("nvidia_nccl")) add("NCCL", version);
    }
    add("the NCCL variables", nccl_settings(environment));
    return versions;
}

}  // namespace muster::launcher
