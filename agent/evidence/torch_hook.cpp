#include "agent/evidence/torch_hook.h"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view metadata = "Metadata-Version: 2.1\nName: muster-torch-hook\nVersion: 1\n";
constexpr std::string_view entry_points = "[torch.backends]\nmuster = muster_torch_hook:start\n";
constexpr std::string_view hook =
    R"(# Written by muster, which removes it: torch's flight recorder can be asked where this process hangs.
import ctypes
import os
import socket


def served(path):
    """By the process that started this one, mostly; else by one that is gone, and left the socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
            return True
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            os.unlink(path)
            return False


def serve(path):
    from torch._C._distributed_c10d import _WorkerServer
    server = _WorkerServer(path)
    # The object's end would wait for its thread, which a forked child does not have, and say so on stderr, behind the
    # traceback of a script that failed. So it never ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))


def start():
    """At the end of `import torch`, which fails if this does."""
    try:
        path = os.environ.get("MUSTER_TORCH_SOCKET")
        if not path:
            return
        # By its directory's descriptor: a socket's own path may have 107 bytes only.
        directory = os.open(os.path.dirname(path), os.O_PATH)
        try:
            near = f"/proc/self/fd/{directory}/{os.path.basename(path)}"
            if not served(near):
                serve(near)
        finally:
            os.close(directory)
    except Exception:
        pass
)";

bool write(const std::string& path, std::string_view text) {
    std::ofstream out(path, std::ios::trunc);
    return static_cast<bool>(out.write(text.data(), static_cast<std::streamsize>(text.size())).flush());
}

}  // namespace

TorchHook::TorchHook(const std::map<std::string, std::string>& environment) {
    for (const char* const name : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"})
        if (const auto found = environment.find(name); found != environment.end())
            wanted_ = wanted_ || (!found->second.empty() && found->second != "0");
}

Result<void> TorchHook::lay(const std::string& parent) {
    remove();
    if (parent.empty())
        return Error{Errc::unsupported, "torch's flight recorder is not available: there is no log directory"};
    const auto directory = cat(parent, "/torch");
    const auto facts = cat(directory, "/muster_torch_hook-1.dist-info");
    std::error_code failure;
    fs::create_directories(facts, failure);
    directory_ = directory;
    if (!failure && write(cat(facts, "/METADATA"), metadata) && write(cat(facts, "/entry_points.txt"), entry_points) &&
        write(cat(directory, "/muster_torch_hook.py"), hook))
        return {};
    remove();
    return Error{Errc::unsupported, cat("torch's flight recorder is not available: ", directory, " is not writable")};
}

void TorchHook::remove() {
    if (directory_.empty()) return;
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
    directory_.clear();
}

std::string TorchHook::socket(std::uint32_t local_rank) const {
    return directory_.empty() ? std::string() : cat(directory_, '/', local_rank, ".sock");
}

}  // namespace muster::agent
