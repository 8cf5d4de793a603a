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

/// The worker leaves with it when NCCL does not give it back: an abort that did not return. The agent starts it again.
inline constexpr int exit_code_stuck_in_nccl = 79;

struct NcclTerms {
    int device = 0;                  ///< CUDA's number among the visible ones
    Duration abort_limit = 30s;      ///< from a failure to the end of the abort; then the process leaves
    Duration close_limit = 10s;      ///< Time for all ranks to close a healthy communicator.
    Duration compare_interval = 1s;  ///< ranks compare so often whether they run the same
    int ranks_per_root = nccl_ranks_per_root_max;
    std::string cuda_library{};  ///< a file; empty: the usual names
    std::string nccl_library{};
    std::function<void(LogLevel, std::string_view)> log{};   ///< any thread
    std::function<void(std::string_view)> notice{};          ///< a line for the user, whatever the log leaves out
    std::function<void(std::string_view)> before_leaving{};  ///< last words, for the flight record; may be null
};

/// In the plugin: a collective over the group.
using MakeNcclTransport = Result<std::unique_ptr<Transport>> (*)(const GroupTerms&, const NcclTerms&);

/// Host memory that CUDA copies from and to at its full rate, as long as this lives. It must go before the memory does.
class HostPin {
  public:
    HostPin() = default;
    virtual ~HostPin() = default;
    HostPin(const HostPin&) = delete;
    HostPin& operator=(const HostPin&) = delete;
};
/// In the plugin: null where this process has no communicator of NCCL. An error is CUDA's: a limit of locked memory,
/// say.
using PinHostMemory = Result<std::unique_ptr<HostPin>> (*)(void* memory, std::size_t size_bytes);

struct NcclPlugin {
    const char* build;
    MakeNcclTransport make;
    PinHostMemory pin;
};

/// This source tree's version with this compiler: what two halves must have in common to hand each other C++ objects.
inline constexpr const char* nccl_plugin_build = MUSTER_VERSION " " __VERSION__;
inline constexpr const char* nccl_plugin_file = "libmuster_nccl.so";
/// `const NcclPlugin* muster_nccl_plugin()`, with C linkage.
inline constexpr const char* nccl_plugin_symbol = "muster_nccl_plugin";

/// In the runtime: loads the plugin once (MUSTER_NCCL_PLUGIN, else beside this program or library, else where it is
/// installed, else where the system looks) and gives it MUSTER_CUDA_LIBRARY and MUSTER_NCCL_LIBRARY. unsupported says
/// what is missing.
Result<std::unique_ptr<Transport>> make_nccl_transport(const GroupTerms& group, NcclTerms terms);

/// Pins host memory where this process uses a GPU through the plugin. Else null: it never loads the plugin, for that
/// would cost a process without use for it a GPU's context.
Result<std::unique_ptr<HostPin>> pin_host_memory(void* memory, std::size_t size_bytes);

}  // namespace muster::runtime
