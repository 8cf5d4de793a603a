// The interface between the runtime and its NCCL plugin. The plugin (libmuster_nccl.so) is the only part that uses CUDA
// and NCCL; it is loaded when a communicator requests it. Both are built from one tree: the text `build` identifies it,
// and the loader refuses any other.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/nccl/core/nccl_roots.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// The exit code of a worker whose NCCL abort did not return. The agent starts it again.
inline constexpr int exit_code_stuck_in_nccl = 79;

struct NcclTerms {
    int device = 0;                  ///< CUDA's number among the visible devices
    Duration abort_limit = 30s;      ///< from a failure to the end of the abort; then the process exits
    Duration close_limit = 10s;      ///< Time for all ranks to close a healthy communicator.
    Duration compare_interval = 1s;  ///< interval at which ranks compare their operations
    int ranks_per_root = nccl_ranks_per_root_max;
    std::string cuda_library{};  ///< a file; empty: the usual names
    std::string nccl_library{};
    std::function<void(LogLevel, std::string_view)> log{};   ///< any thread
    std::function<void(std::string_view)> notice{};          ///< a line for the user, independent of the log level
    std::function<void(std::string_view)> before_leaving{};  ///< for the flight record; may be null
};

/// In the plugin: a collective over the group.
using MakeNcclTransport = Result<std::unique_ptr<Transport>> (*)(const GroupTerms&, const NcclTerms&);

/// Pins host memory, so that CUDA copies at full rate, while this lives. It must be destroyed before the memory.
class HostPin {
  public:
    virtual ~HostPin() = default;
    HostPin& operator=(HostPin&&) = delete;
};
/// In the plugin. Returns null if this process has no NCCL communicator. An error is CUDA's, for example a limit of
/// locked memory.
using PinHostMemory = Result<std::unique_ptr<HostPin>> (*)(void* memory, std::size_t size_bytes);

struct NcclPlugin {
    const char* build;
    MakeNcclTransport make;
    PinHostMemory pin;
};

/// The version of the source tree and the compiler: both must be equal to exchange C++ objects.
inline constexpr const char* nccl_plugin_build = MUSTER_VERSION " " __VERSION__;
inline constexpr const char* nccl_plugin_file = "libmuster_nccl.so";
/// `const NcclPlugin* muster_nccl_plugin()`, with C linkage.
inline constexpr const char* nccl_plugin_symbol = "muster_nccl_plugin";

/// In the runtime: loads the plugin once (from MUSTER_NCCL_PLUGIN, else from beside this program or library, else from
/// where it is installed, else by the system's search) and passes it MUSTER_CUDA_LIBRARY and MUSTER_NCCL_LIBRARY.
/// unsupported names what is missing.
Result<std::unique_ptr<Transport>> make_nccl_transport(const GroupTerms& group, NcclTerms terms);

/// Pins host memory if this process uses a GPU through the plugin, else returns null. It never loads the plugin,
/// because that would create a GPU context in processes that need none.
Result<std::unique_ptr<HostPin>> pin_host_memory(void* memory, std::size_t size_bytes);

}  // namespace muster::runtime
