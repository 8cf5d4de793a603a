#include "launcher/node/torch_package.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

#include "launcher/options/entry.h"
#include "launcher/report/command_output.h"
#include "rendezvous/base/kernel/file_size_limit.h"
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
    std::error_code none;
    for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
        const auto name = at->path().filename().string();
        if (name.starts_with("muster-") && name.ends_with(".dist-info") &&
            fs::exists(at->path() / "entry_points.txt", none))
            return true;
    }
    return false;
}

/// Empty if it is not known.
fs::path program_folder() {
    std::error_code failure;
    return fs::read_symlink("/proc/self/exe", failure).parent_path();
}

/// Of an installation, below its prefix, and of the repository, from build/PRESET/bin.
std::vector<fs::path> folders_beside_program() {
    std::vector<fs::path> folders;
    for (const char* const near : {"../lib/muster/python", "../../../worker_runtime/python"})
        folders.push_back((program_folder() / near).lexically_normal());
    return folders;
}

/// Where pip has installed the package beside this program, or an empty path.
fs::path installed_by_pip() {
    std::error_code failure;
    const auto libraries = (program_folder() / "../lib").lexically_normal();
    for (fs::directory_iterator at(libraries, failure), end; !failure && at != end; at.increment(failure)) {
        if (!at->path().filename().string().starts_with("python3")) continue;
        if (has_package(at->path() / "site-packages")) return at->path() / "site-packages";
    }
    return {};
}

/// The Python of the workers, if it is another than that of the virtual environment of this program; else empty.
std::string other_python(const LaunchConfig& config, const Environment& environment) {
    std::error_code failure;
    if (!fs::exists(program_folder().parent_path() / "pyvenv.cfg", failure)) return {};
    const auto entry = resolve_entry(config, environment);
    const auto* const command = std::get_if<Entry>(&entry);
    if (command == nullptr || command->argv.size() < 2 || command->argv[1] != "-u") return {};
    const fs::path python(command->argv[0]);
    return fs::equivalent(python.parent_path(), program_folder(), failure) ? std::string() : python.string();
}

}  // namespace

Result<void> offer_torch_package(const LaunchConfig& config, Environment& environment) {
    environment.erase("MUSTER_TORCH_BACKEND");
    environment.erase("MUSTER_TORCH_STEPS");
    if (config.torch_backend.empty() && !config.torch_steps) return {};
    const bool is_backend = !config.torch_backend.empty();
    const auto option = is_backend ? cat("--torch-backend ", config.torch_backend) : std::string("--torch-steps");
    const std::string_view otherwise = is_backend ? "PyTorch would use gloo" : "no steps are reported";
    if (is_backend) environment["MUSTER_TORCH_BACKEND"] = config.torch_backend;
    if (config.torch_steps) environment["MUSTER_TORCH_STEPS"] = "1";
    // Only "1" loads back ends; PyTorch takes the variable so.
    const auto autoload = lookup(environment, "TORCH_DEVICE_BACKEND_AUTOLOAD");
    if (autoload && *autoload != "1")
        return Error{Errc::invalid_argument,
                     cat(option, ": TORCH_DEVICE_BACKEND_AUTOLOAD=", *autoload,
                         " keeps PyTorch from loading back ends, so ", otherwise, "; unset the variable")};
    auto& path = environment["PYTHONPATH"];
    for (const auto folder : split(path, ':'))
        if (has_package(folder)) return {};
    if (const auto site = installed_by_pip(); !site.empty()) {
        // Its Python reads it without us, and what else is there is not for other Pythons.
        const auto other = other_python(config, environment);
        if (other.empty()) return {};
        return Error{Errc::not_found,
                     cat(option, ": muster is installed in ", site.string(), ", and the workers' Python is ", other,
                         ", where ", otherwise, "; install muster there too, or set PYTHON_EXEC to ",
                         (program_folder() / "python3").string())};
    }
    std::vector<std::string> looked;
    for (const auto& folder : folders_beside_program()) {
        looked.push_back(folder.string());
        if (!has_package(folder)) continue;
        path = path.empty() ? folder.string() : cat(path, ':', folder.string());
        return {};
    }
    return Error{Errc::not_found,
                 cat(option, ": muster's Python package is neither in PYTHONPATH nor beside this program (",
                     join(looked, ", "), "), and without it ", otherwise,
                     "; add the folder that has muster/, muster_torch.py and muster-*.dist-info to PYTHONPATH")};
}

int run_torch_build(const std::vector<std::string>& arguments, Environment environment) {
    constexpr const char* command = "torch-build";
    LaunchConfig config;
    config.torch_backend = "muster";
    config.entry = EntryKind::module;
    config.script = "muster.torch_build";
    config.arguments = arguments;
    environment.erase("TORCH_DEVICE_BACKEND_AUTOLOAD");  // what a job must not set is no matter here
    if (const auto offered = offer_torch_package(config, environment); !offered)
        return print_error(command, exit_codes::configuration, offered.error().context);
    environment.erase("MUSTER_TORCH_BACKEND");
    const auto entry = resolve_entry(config, environment);
    if (const auto* wrong = std::get_if<NotRunnable>(&entry)) return print_error(command, wrong->exit_code, wrong->why);
    std::vector<std::string> words = std::get<Entry>(entry).argv;
    std::vector<std::string> assignments;
    for (const auto& [name, value] : environment) assignments.push_back(cat(name, '=', value));
    std::vector<char*> argv;
    std::vector<char*> envp;
    for (auto& word : words) argv.push_back(word.data());
    for (auto& assignment : assignments) envp.push_back(assignment.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    ::execve(argv.front(), argv.data(), envp.data());
    return print_error(command, exit_codes::not_executable, cat(words.front(), ": ", errno_text(errno)));
}

}  // namespace muster::launcher
