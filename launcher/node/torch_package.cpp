#include "launcher/node/torch_package.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace fs = std::filesystem;

namespace {

bool has_package(const fs::path& folder) {
    std::error_code failure;
    return !folder.empty() && fs::exists(folder / "muster/torch/__init__.py", failure);
}

/// Of an installation, below its prefix, and of the repository, from build/PRESET/bin.
std::vector<fs::path> folders_beside_program() {
    std::error_code failure;
    const auto own = fs::read_symlink("/proc/self/exe", failure);
    if (failure) return {};
    std::vector<fs::path> folders;
    for (const char* const near : {"../lib/python3/dist-packages", "../../../worker_runtime/python"})
        folders.push_back((own.parent_path() / near).lexically_normal());
    return folders;
}

}  // namespace

Result<void> offer_torch_backend(const LaunchConfig& config, Environment& environment) {
    environment.erase("MUSTER_TORCH_BACKEND");
    if (config.torch_backend.empty()) return {};
    environment["MUSTER_TORCH_BACKEND"] = config.torch_backend;
    auto& path = environment["PYTHONPATH"];
    for (const auto folder : split(path, ':'))
        if (has_package(folder)) return {};
    std::vector<std::string> looked;
    for (const auto& folder : folders_beside_program()) {
        looked.push_back(folder.string());
        if (!has_package(folder)) continue;
        path = path.empty() ? folder.string() : cat(path, ':', folder.string());
        return {};
    }
    return Error{Errc::not_found,
                 cat("--torch-backend ", config.torch_backend,
                     ": muster's Python package is neither in PYTHONPATH nor beside this program (", join(looked, ", "),
                     "), and without it PyTorch would use gloo; add the folder "
                     "that has muster/torch to PYTHONPATH")};
}

}  // namespace muster::launcher
