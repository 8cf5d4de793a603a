#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <utility>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/plugin.h"
#include "worker_runtime/transport/variable.h"

namespace muster::runtime {

namespace {

/// Null until a communicator has requested the plugin.
std::atomic<const NcclPlugin*> plugin_in_use = nullptr;

/// Returns the folder of the program or shared library that contains this code.
std::filesystem::path own_folder() {
    Dl_info facts{};
    if (::dladdr(reinterpret_cast<const void*>(&own_folder), &facts) == 0 || facts.dli_fname == nullptr) return {};
    std::error_code ignored;
    // A program's name is the one it was started with, perhaps without a folder.
    const std::filesystem::path name(facts.dli_fname);
    const auto full = name.has_parent_path() ? std::filesystem::canonical(name, ignored)
                                             : std::filesystem::read_symlink("/proc/self/exe", ignored);
    return full.parent_path();
}

std::vector<std::string> candidates() {
    if (auto named = variable("MUSTER_NCCL_PLUGIN"); named && !named->empty()) return {std::move(*named)};
    std::vector<std::string> paths;
    std::error_code ignored;
    // "." is for a program or libmuster.so in a build tree, the next two are for those that are installed with the
    // plugin, and the last two for programs elsewhere, where this build or its Debian packages are installed. Appending
    // an absolute path replaces the folder.
    for (const char* const folder : {".", "../lib", "muster", MUSTER_PLUGINS_INSTALLED, MUSTER_PLUGINS_PACKAGED}) {
        const auto path = (own_folder() / folder / nccl_plugin_file).lexically_normal();
        if (std::filesystem::exists(path, ignored)) paths.push_back(path.string());
    }
    paths.emplace_back(nccl_plugin_file);
    return paths;
}

Result<const NcclPlugin*> open_plugin() {
    const auto path = candidates().front();
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return Error{Errc::unsupported,
                     cat("cannot load the NCCL plugin: ", ::dlerror(),
                         "; build muster with the headers of CUDA and NCCL, or name the file in MUSTER_NCCL_PLUGIN")};
    }
    const auto entry = reinterpret_cast<const NcclPlugin* (*)()>(::dlsym(library, nccl_plugin_symbol));
    if (entry == nullptr) {
        return Error{Errc::unsupported, cat(path, " is not an NCCL plugin of muster: it lacks ", nccl_plugin_symbol)};
    }
    const NcclPlugin* const plugin = entry();
    if (std::string_view(plugin->build) != nccl_plugin_build) {
        return Error{Errc::unsupported, cat(path, " belongs to muster ", plugin->build, ", and this program to ",
                                            nccl_plugin_build, ": build both together")};
    }
    return plugin;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_nccl_transport(const GroupTerms& group, NcclTerms terms) {
    static const Result<const NcclPlugin*> plugin = open_plugin();
    if (!plugin) return plugin.error();
    plugin_in_use = *plugin;
    terms.cuda_library = variable("MUSTER_CUDA_LIBRARY").value_or("");
    terms.nccl_library = variable("MUSTER_NCCL_LIBRARY").value_or("");
    if (!terms.log) terms.log = [](LogLevel level, std::string_view line) { log(level, line); };
    if (!terms.notice) {
        terms.notice = [](std::string_view line) {
            if (log_enabled(LogLevel::warning)) print_notice(cat("muster: ", line, "\n"));
        };
    }
    return (*plugin)->make(group, terms);
}

Result<std::unique_ptr<HostPin>> pin_host_memory(void* memory, std::size_t size_bytes) {
    const NcclPlugin* const plugin = plugin_in_use;
    if (plugin == nullptr) return std::unique_ptr<HostPin>();
    return plugin->pin(memory, size_bytes);
}

}  // namespace muster::runtime
