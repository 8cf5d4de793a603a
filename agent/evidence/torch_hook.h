// Makes torch's flight recorder of an unmodified script available to torch_server.h. At the end of `import torch` torch
// calls the entry points "torch.backends" of all distributions on Python's path (torch 2.5 or newer, unless
// TORCH_DEVICE_BACKEND_AUTOLOAD=0). A directory with such a distribution is appended to PYTHONPATH. Its module starts
// torch's own debug server in a thread, at the Unix socket that MUSTER_TORCH_SOCKET names. An error in it does not
// affect the script.
//
// Used only if the user has enabled the recorder by name. Otherwise a script sees the same environment as under
// torchrun.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "rendezvous/base/error.h"

namespace muster::agent {

class TorchHook {
  public:
    /// Of workers with this environment: wanted if TORCH_FR_BUFFER_SIZE or TORCH_NCCL_TRACE_BUFFER_SIZE is there and
    /// not 0.
    explicit TorchHook(const std::map<std::string, std::string>& environment);
    ~TorchHook() { remove(); }
    TorchHook& operator=(TorchHook&&) = delete;

    [[nodiscard]] bool wanted() const { return wanted_; }
    /// Writes it into "<parent>/torch". What was there of a round before is gone then, its sockets too. With an empty
    /// `parent`, or where nothing can be written, fails (unsupported), and says so.
    Result<void> lay(const std::string& parent);
    void remove();
    /// For PYTHONPATH; empty: it is not laid.
    [[nodiscard]] const std::string& directory() const { return directory_; }
    /// Where that worker is to serve; empty if it is not laid. It may be longer than a socket's address
    /// (torch_server.h).
    [[nodiscard]] std::string socket(std::uint32_t local_rank) const;

  private:
    bool wanted_ = false;
    std::string directory_;
};

}  // namespace muster::agent
