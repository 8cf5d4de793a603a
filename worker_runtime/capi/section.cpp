#include "muster/section.h"

#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/context/progress_reporter.h"

using namespace muster;
using namespace muster::capi;

extern "C" {

void muster_heartbeat(void) {
    heartbeat();
}

void muster_progress(int64_t step) {
    progress(step);
}

muster_status muster_section_enter(const char* name, int64_t limit_ms, uint64_t* section) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(section, "section", 0));
        if (name == nullptr || *name == '\0') return invalid("`name` is NULL or empty");
        if (limit_ms < 0) return invalid(cat("`limit_ms` is ", limit_ms, "; it must be >= 0, and 0 means no limit"));
        *section = runtime::ProgressReporter::of_process().enter(name, std::chrono::milliseconds(limit_ms));
        return {};
    });
}

void muster_section_leave(uint64_t section) {
    runtime::ProgressReporter::of_process().leave(section);
}
}
