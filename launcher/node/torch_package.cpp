#include "launcher/node/torch_package.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace fs = std::filesystem;

namespace {

/// With the module and the entry point that PyTorch loads: without them it would use gloo without a word.
bool has_package(const fs::path& folder) {
    std::error_code failure;
    if (folder.empty() || !fs::exists(folder / "muster/torch/__init__.py", failure) ||
        !fs::exists(folder / "muster_torch.py", failure))
        return false;
    for (const auto& entry : fs::directory_iterator(folder, failure)) {
        const auto name = entry.path().filename().string();
        if (name.starts_with("muster-") && name.ends_with(".dist-info") &&
            fs::exists(entry.path() / "entry_points.txt", failure))
            return true;
    }
    return false;
}

/// Of an installation, below its prefix, and of the repository, from build/PRESET/bin.
std::vector<fs::path> folders_beside_program() {
    std::error_code failure;
    const auto own = fs::read_symlink("/proc/self/exe", failure);
    if (failure) return {};
    std::vector<fs::path> folders;
    for (const char* const near : {"../lib/muster/python", "../../../worker_runtime/python"})
        folders.push_back((own.parent_path() / near).lexically_normal());
    return folders;
}

}  // namespace

Result<void> offer_torch_backend(const LaunchConfig& config, Environment& environment) {
    environment.erase("MUSTER_TORCH_BACKEND");
    if (config.torch_backend.empty()) return {};
    // Only "1" loads back ends; PyTorch takes the variable so.
    const auto autoload = lookup(environment, "TORCH_DEVICE_BACKEND_AUTOLOAD");
    if (autoload && *autoload != "1")
        return Error{Errc::invalid_argument,
                     cat("--torch-backend ", config.torch_backend, ": TORCH_DEVICE_BACKEND_AUTOLOAD=", *autoload,
                         " keeps PyTorch from loading back ends, so it would use gloo; unset the variable")};
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
                     "that has muster/, muster_torch.py and muster-*.dist-info to PYTHONPATH")};
}

}  // namespace muster::launcher
