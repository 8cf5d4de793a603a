#include "agent/diagnosis/error_text.h"

#include <algorithm>
#include <array>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t end_bytes = 8 * 1024;
constexpr std::size_t quoted_bytes_max = 200;
constexpr std::size_t long_quote_bytes_max = 400;

struct ErrorPattern {
    std::string_view text;  ///< Text of the library.
    CauseKind kind;
    std::string_view advice;
};

constexpr std::string_view no_gpu =
    "it found no GPU: check CUDA_VISIBLE_DEVICES, the driver (nvidia-smi) and --nproc-per-node";
/// Text of our runtime's plugin (cuda_table.cpp).
constexpr std::string_view no_cuda_runtime = "no CUDA runtime library";
constexpr std::string_view no_memory = "out of memory: an allocation failed";
constexpr std::string_view no_gpu_memory =
    "out of GPU memory: use a smaller batch, or check with nvidia-smi for other processes on this GPU";
constexpr std::string_view ranks_differ = "ranks called different operations, or passed different sizes or types";
constexpr std::string_view no_shm = "/dev/shm has no free space";
constexpr std::string_view no_disk = "a disk or a quota is full: check the target of its writes with df -h and df -i";
constexpr std::string_view file_too_large = "a file reached the limit on file sizes: raise ulimit -f (RLIMIT_FSIZE)";
constexpr std::string_view no_thread =
    "it was refused a thread: raise ulimit -u (RLIMIT_NPROC) or pids.max of the control group, or start fewer workers "
    "or threads here";

/// In the order of precedence: the more special text first.
constexpr std::array error_patterns{
    // Shared memory: torch's data loader and storage.
    ErrorPattern{"insufficient shared memory (shm)", CauseKind::shared_memory_full, no_shm},
    ErrorPattern{"unable to allocate shared memory(shm)", CauseKind::shared_memory_full, no_shm},
    ErrorPattern{"unable to write to file </torch_", CauseKind::shared_memory_full, no_shm},
    // Ranks that do not agree: our runtime (shared_group, tcp_lanes, tcp_channel), torch's debug mode, gloo, NCCL.
    ErrorPattern{"ranks differ in ", CauseKind::collective_mismatch, ranks_differ},
    ErrorPattern{"; make both counts equal", CauseKind::collective_mismatch, ranks_differ},  // parts_table
    ErrorPattern{"Detected mismatch between collectives", CauseKind::collective_mismatch, ranks_differ},
    ErrorPattern{"op.preamble.length <= op.nbytes", CauseKind::collective_mismatch, ranks_differ},
    ErrorPattern{"Message truncated", CauseKind::collective_mismatch, ranks_differ},
    // GPUs: torch, the CUDA runtime.
    ErrorPattern{"No CUDA GPUs are available", CauseKind::missing_gpu, no_gpu},
    ErrorPattern{"Found no NVIDIA driver", CauseKind::missing_gpu, no_gpu},
    ErrorPattern{"Torch not compiled with CUDA enabled", CauseKind::missing_gpu, no_gpu},
    ErrorPattern{"no CUDA-capable device is detected", CauseKind::missing_gpu, no_gpu},
    ErrorPattern{"invalid device ordinal", CauseKind::missing_gpu, no_gpu},
    // Memory.
    ErrorPattern{"CUDA out of memory", CauseKind::allocation_failed, no_gpu_memory},
    ErrorPattern{"OutOfMemoryError", CauseKind::allocation_failed, no_gpu_memory},
    ErrorPattern{"MemoryError", CauseKind::allocation_failed, no_memory},
    ErrorPattern{"std::bad_alloc", CauseKind::allocation_failed, no_memory},
    ErrorPattern{"can't allocate memory", CauseKind::allocation_failed, no_memory},
    ErrorPattern{"Cannot allocate memory", CauseKind::allocation_failed, no_memory},
    ErrorPattern{"No space left on device", CauseKind::disk_full, no_disk},
    ErrorPattern{"Disk quota exceeded", CauseKind::disk_full, no_disk},
    ErrorPattern{"File too large", CauseKind::disk_full, file_too_large},
    // Python, OpenBLAS, OpenMP.
    ErrorPattern{"can't start new thread", CauseKind::unknown, no_thread},
    ErrorPattern{"pthread_create failed", CauseKind::unknown, no_thread},
    ErrorPattern{"Thread creation failed", CauseKind::unknown, no_thread},
};

std::string_view line_with(std::string_view words, std::size_t at) {
    const auto begin = words.rfind('\n', at) + 1;  // npos + 1 is 0
    return trim(words.substr(begin, words.find('\n', at) - begin)).substr(0, quoted_bytes_max);
}

std::string_view line_from(std::string_view words, std::size_t at) {
    return trim(words.substr(at, words.find('\n', at) - at)).substr(0, long_quote_bytes_max);
}

/// The dynamic loader's words; Python's ImportError quotes them.
std::optional<KnownError> missing_library(std::string_view words) {
    const auto at = words.rfind(": cannot open shared object file");
    if (at == std::string_view::npos) return std::nullopt;
    const auto before = words.substr(0, at);
    const auto library = before.substr(before.find_last_of(" \n") + 1);
    if (library.empty()) return std::nullopt;
    return KnownError{CauseKind::missing_library,
                      cat("the shared library ", library.substr(0, quoted_bytes_max),
                          " was not found: install it, or add its directory to LD_LIBRARY_PATH")};
}

std::optional<KnownError> import_error(std::string_view words) {
    for (const std::string_view name : {"ModuleNotFoundError: ", "ImportError: "}) {
        const auto at = words.rfind(name);
        if (at == std::string_view::npos) continue;
        return KnownError{
            CauseKind::import_error,
            cat(line_with(words, at), ": install it on this host for this Python, or add its directory to PYTHONPATH")};
    }
    return std::nullopt;
}

/// The words of `python -m`.
std::optional<KnownError> no_such_module(std::string_view words) {
    constexpr std::string_view text = ": No module named ";
    const auto at = words.rfind(text);
    if (at == std::string_view::npos) return std::nullopt;
    const auto name = line_from(words, at + text.size());
    return KnownError{CauseKind::import_error,
                      cat("this Python finds no module ", name,
                          ": correct the name after -m, start muster in the directory of the module (or add that "
                          "directory to PYTHONPATH), or install it on this host for this Python")};
}

constexpr std::string_view traceback = "Traceback (most recent call last)";

/// A thread that waits for Python's lock while the interpreter ends is ended there, and C++ does not bear it. PyTorch's
/// gloo comes to that after work that was done well: github.com/pytorch/pytorch/issues/190489.
std::optional<KnownError> thread_at_the_end(std::string_view words) {
    if (words.find("terminate called without an active exception") == std::string_view::npos) return std::nullopt;
    if (words.find(traceback) != std::string_view::npos) return std::nullopt;  // that goes before
    return KnownError{CauseKind::unknown,
                      "a C++ thread was running when the program exited; in Python with gloo this is usually PyTorch's "
                      "issue 190489, after all work was done: flush the output and end the script with os._exit(0)"};
}

}  // namespace

std::string_view last_bytes(std::string_view text) {
    return text.substr(text.size() - std::min(text.size(), end_bytes));
}

std::string_view error_text(std::string_view message, std::string_view stderr_tail) {
    if (!message.empty()) return message;
    const auto at = stderr_tail.rfind(traceback);
    if (at != std::string_view::npos) return stderr_tail.substr(at);
    return last_bytes(stderr_tail);
}

std::optional<KnownError> known_error(std::string_view words) {
    // Before the library that it quotes: where there is no GPU, nobody installs CUDA for it.
    if (words.find(no_cuda_runtime) != std::string_view::npos)
        return KnownError{CauseKind::missing_gpu, std::string(no_gpu)};
    if (auto missing = missing_library(words)) return missing;
    for (const auto& known : error_patterns) {
        const auto at = words.find(known.text);
        if (at == std::string_view::npos) continue;
        // Who differs in what is in the libraries' own words.
        const bool quote = known.kind == CauseKind::collective_mismatch;
        return KnownError{known.kind,
                          quote ? cat(known.advice, ": ", line_from(words, at)) : std::string(known.advice)};
    }
    if (auto failed = import_error(words)) return failed;
    if (auto failed = no_such_module(words)) return failed;
    return thread_at_the_end(words);
}

}  // namespace muster::agent
