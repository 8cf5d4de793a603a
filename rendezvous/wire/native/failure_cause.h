// The cause of a worker's end, as far as known (worker_end.h has how it ended).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

/// The names are those of the JSON report (name(CauseKind)); numbers are never used again for something else.
enum class CauseKind : std::uint8_t {
    unknown = 0,
    out_of_memory = 1,         ///< the kernel killed it because memory ran out
    allocation_failed = 2,     ///< it was refused memory and gave up: MemoryError, std::bad_alloc, CUDA out of memory
    killed_from_outside = 3,   ///< SIGKILL, and the kernel knows of no out-of-memory kill
    shared_memory_full = 4,    ///< SIGBUS or an error about /dev/shm, which is full
    memory_fault = 5,          ///< SIGSEGV and the like; the kernel log says where
    hardware_memory = 6,       ///< SIGBUS because a memory module failed
    gpu_fault = 7,             ///< the driver reported an Xid for it
    missing_gpu = 8,           ///< it wanted a GPU that is not there
    missing_library = 9,       ///< a shared library cannot be found
    missing_interpreter = 10,  ///< the program is there, and what its first line names is not
    import_error = 11,         ///< a Python module cannot be imported
    disk_full = 12,
    collective_mismatch = 13,  ///< ranks called different operations, or with different sizes
    timer_expired = 14,        ///< A timer of torch's protocol expired.
    hung = 15,                 ///< It made no progress, and muster killed it.
};

/// "out_of_memory".
std::string_view name(CauseKind kind);
/// "out of memory".
std::string description_of(CauseKind kind);

struct FailureCause {
    CauseKind kind = CauseKind::unknown;
    std::string text;       ///< One or two sentences, including what to do. May be set if `kind` is unknown.
    std::string core_file;  ///< Path of the core dump, or its receiver. Empty: none.

    friend bool operator==(const FailureCause&, const FailureCause&) = default;
};

}  // namespace muster
