#include "rendezvous/wire/native/failure_cause.h"

#include <algorithm>
#include <array>

#include "rendezvous/base/check.h"
#include "rendezvous/wire/native/failure.h"

namespace muster {

std::string_view name(CauseKind kind) {
    constexpr std::array<std::string_view, 16> names{"unknown",
                                                     "out_of_memory",
                                                     "allocation_failed",
                                                     "killed_from_outside",
                                                     "shared_memory_full",
                                                     "memory_fault",
                                                     "hardware_memory",
                                                     "gpu_fault",
                                                     "missing_gpu",
                                                     "missing_library",
                                                     "missing_interpreter",
                                                     "import_error",
                                                     "disk_full",
                                                     "collective_mismatch",
                                                     "timer_expired",
                                                     "hung"};
    const auto index = static_cast<std::size_t>(kind);
    MUSTER_CHECK(index < names.size(), index);
    return names[index];
}

std::string_view name(FailureKind kind) {
    switch (kind) {
        case FailureKind::node_lost: return "node_lost";
        case FailureKind::killed: return "killed";
        case FailureKind::worker_error: return "worker_error";
        case FailureKind::communication_error: return "communication_error";
    }
    return "unknown";
}

std::string description_of(CauseKind kind) {
    std::string words(name(kind));
    std::replace(words.begin(), words.end(), '_', ' ');
    return words;
}

}  // namespace muster
