#include "agent/diagnosis/end_cause.h"

#include <algorithm>
#include <array>

#include "agent/diagnosis/error_text.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::int32_t sigbus = 7;  // the same on every Linux; cores know no <csignal>
constexpr std::int32_t kill_signal = 9;
constexpr std::int32_t sigsegv = 11;
constexpr std::int32_t shell_base = 128;  // a shell exits 128+n for a program that signal n ended
/// Less than this is full: what a tensor or a queue asks for is larger.
constexpr std::int64_t shm_low_bytes = 1 << 20;
/// Docker's default, in which most shortages of shared memory happen.
constexpr std::int64_t shm_docker_bytes = std::int64_t{64} << 20;

FailureCause because(CauseKind kind, std::string text) {
    return {kind, std::move(text), {}};
}

std::string mebibytes(std::int64_t bytes) {
    constexpr std::int64_t mib = 1 << 20;
    if (bytes >= 10 * 1024 * mib) return cat(bytes / (1024 * mib), " GiB");
    if (bytes >= mib) return cat(bytes / mib, " MiB");
    return cat(bytes / 1024, " KiB");
}

/// The signal it died of; also one that a shell reports by its exit code. 0: none.
std::int32_t fatal_signal(const WorkerEnd& end) {
    if (const auto* signaled = std::get_if<Signaled>(&end)) return signaled->signal;
    const auto* exited = std::get_if<Exited>(&end);
    return exited != nullptr && exited->code > shell_base && exited->code < shell_base + 65 ? exited->code - shell_base
                                                                                            : 0;
}

/// The newest event of this kind about the worker. (After the last one of a pid that was used twice.)
template <class Event>
const Event* event_about(const EndFacts& facts) {
    const Event* found = nullptr;
    for (const auto& event : facts.kernel_events) {
        const auto* one = std::get_if<Event>(&event);
        if (one != nullptr && one->pid == facts.pid && facts.pid > 0) found = one;
    }
    return found;
}

/// After an earlier error, and also where SIGKILL ends a process that uses a GPU: no cause.
constexpr std::int32_t xid_of_consequence = 45;

/// The newest GPU error that names the worker, or the newest one that names nobody: mostly the driver does not know.
const GpuError* gpu_error(const EndFacts& facts, bool without_pid) {
    const GpuError* found = nullptr;
    for (const auto& event : facts.kernel_events) {
        const auto* one = std::get_if<GpuError>(&event);
        if (one == nullptr || one->xid == xid_of_consequence) continue;
        if (without_pid ? one->pid == 0 : one->pid == facts.pid && facts.pid > 0) found = one;
    }
    return found;
}

/// Its last words are of a call to a GPU that failed: torch's and the CUDA runtime's, the driver's, NCCL's.
bool mentions_gpu(std::string_view words) {
    constexpr std::array texts{std::string_view("CUDA error"),   std::string_view("CUDA_ERROR_"),
                               std::string_view("cudaError"),    std::string_view("CUDA driver error"),
                               std::string_view("Cuda failure"), std::string_view("unhandled cuda error")};
    return std::ranges::any_of(texts, [&](auto text) { return words.find(text) != std::string_view::npos; });
}

struct XidMeaning {
    std::int32_t xid;
    std::string_view text;
};

/// NVIDIA's "Xid Errors", shortened: who caused it, and what to do.
constexpr std::array xid_meanings{
    XidMeaning{13, "a graphics engine exception: usually an error of the program (a kernel out of bounds)"},
    XidMeaning{31, "a GPU memory page fault: usually an error of the program (an illegal address)"},
    XidMeaning{43, "the GPU stopped this program's work: usually an error of the program"},
    XidMeaning{45, "the GPU's work was removed with its process: a consequence, look for an earlier Xid"},
    XidMeaning{48, "an ECC error that could not be corrected: the GPU needs a reset"},
    XidMeaning{62, "an internal halt of the GPU's microcontroller: it needs a reset"},
    XidMeaning{63, "memory of the GPU is being remapped: reset the GPU after the job"},
    XidMeaning{64, "memory of the GPU could not be remapped: take the node out of service"},
    XidMeaning{74, "an NVLink error: check the link and its bridge"},
    XidMeaning{79, "the GPU has fallen off the bus: take the node out of service"},
    XidMeaning{92, "many corrected ECC errors: monitor this GPU"},
    XidMeaning{94, "a contained ECC error: start the job again; reset the GPU when it is idle"},
    XidMeaning{95, "an uncontained ECC error: the GPU needs a reset"},
    XidMeaning{119, "the GPU's system processor does not answer: it needs a reset"},
    XidMeaning{120, "an error of the GPU's system processor: it needs a reset"},
};

std::string xid_text(const GpuError& error) {
    const auto meaning = std::ranges::find(xid_meanings, error.xid, &XidMeaning::xid);
    return cat("Xid ", error.xid, error.pid > 0 ? " for it" : "", " on ", error.device,
               error.pid > 0 ? "" : " in this round, without a process",
               meaning == xid_meanings.end() ? std::string() : cat(": ", meaning->text));
}

constexpr std::string_view full_host = "the host's memory is full: run fewer or smaller workers on it";

std::string describe_limit(const EndFacts& facts) {
    const auto& group = facts.memory_group;
    if (!group || group->limit_bytes < 0) return std::string(full_host);
    const auto peak = group->peak_bytes < 0 ? std::string() : cat(", peak usage ", mebibytes(group->peak_bytes));
    return cat("the limit is ", mebibytes(group->limit_bytes), " (", group->limited_by, ")", peak,
               ": raise it, or run fewer or smaller workers");
}

/// A group counts the kills of the whole host too. Who never came near its limit died of one of these.
bool is_hosts_shortage(const MemoryGroup& group) {
    return group.limit_bytes >= 0 && group.peak_bytes >= 0 && group.peak_bytes < group.limit_bytes / 10 * 9;
}

std::optional<FailureCause> cause_by_kernel_log(const EndFacts& facts) {
    if (const auto* kill = event_about<OomKill>(facts)) {
        const auto size = kill->resident_kib >= 0 ? cat(" (it held ", mebibytes(kill->resident_kib * 1024), ")") : "";
        return because(CauseKind::out_of_memory, cat("the kernel killed it because memory ran out", size, "; ",
                                                     kill->in_group ? describe_limit(facts) : std::string(full_host)));
    }
    if (const auto* gpu = gpu_error(facts, /*without_pid=*/false))
        return because(CauseKind::gpu_fault, cat("the NVIDIA driver reported ", xid_text(*gpu)));
    if (event_about<HardwareMemoryError>(facts) != nullptr)
        return because(CauseKind::hardware_memory,
                       "uncorrectable memory error (faulty module) on this host: take the node out of service");
    return std::nullopt;
}

/// Only where SIGKILL was the end: a victim of the same moment must not take the blame of the one that was killed.
std::optional<FailureCause> cause_by_counters(const EndFacts& facts) {
    if (facts.killer == Killer::muster) return std::nullopt;
    if (fatal_signal(facts.end) != kill_signal || facts.oom_kills.value_or(0) <= 0) return std::nullopt;
    const auto& group = facts.memory_group;
    const auto why = group && is_hosts_shortage(*group)
                         ? cat("its peak usage was ", mebibytes(group->peak_bytes), " of its limit of ",
                               mebibytes(group->limit_bytes), ", so ", full_host)
                         : describe_limit(facts);
    return because(CauseKind::out_of_memory,
                   cat("the kernel killed it because memory ran out, according to the counter of ",
                       group ? group->path : "the host", "; ", why));
}

std::optional<FailureCause> shared_memory(const EndFacts& facts, bool named_in_text) {
    if (fatal_signal(facts.end) != sigbus && !named_in_text) return std::nullopt;
    const auto advice = "; enlarge it (mount -o remount,size=..., docker --shm-size), or use fewer data-loader workers";
    const bool full = facts.shm_bytes > 0 && facts.shm_free_bytes >= 0 && facts.shm_free_bytes < shm_low_bytes;
    if (full)
        return because(CauseKind::shared_memory_full,
                       cat("/dev/shm of ", mebibytes(facts.shm_bytes), " is full", advice));
    if (named_in_text || (facts.shm_bytes > 0 && facts.shm_bytes <= shm_docker_bytes))
        return because(
            CauseKind::shared_memory_full,
            cat("/dev/shm was probably full",
                facts.shm_bytes > 0 ? cat(": it has only ", mebibytes(facts.shm_bytes)) : std::string(), advice));
    return std::nullopt;
}

/// Whose the GPU was is not known, so only a worker that itself says that a GPU failed under it has this cause.
std::optional<FailureCause> unnamed_gpu(const EndFacts& facts, std::string_view words) {
    const auto* gpu = gpu_error(facts, /*without_pid=*/true);
    if (gpu == nullptr || !mentions_gpu(words)) return std::nullopt;
    return because(CauseKind::gpu_fault, cat("the NVIDIA driver reported ", xid_text(*gpu)));
}

FailureCause cause_by_text(const EndFacts& facts, const KnownError& word) {
    auto cause = because(word.kind, word.text);
    if (word.kind == CauseKind::allocation_failed && facts.address_space_limit_bytes >= 0)
        cause.text +=
            cat("; its address space is limited to ", mebibytes(facts.address_space_limit_bytes), " (ulimit -v)");
    return cause;
}

std::string killed_text(const EndFacts& facts) {
    const bool by_shell = std::holds_alternative<Exited>(facts.end);
    return cat(
        by_shell ? "a shell's exit code for a program killed by signal 9 (SIGKILL), " : "",
        "sent from outside the job (a person, a scheduler or another program); ",
        facts.kernel_log_read ? "the kernel log shows" : "the kernel's counters show",
        " no out-of-memory kill; check the log of the scheduler and of other programs that may kill processes here");
}

/// Nothing was said by anybody.
FailureCause cause_without_text(const EndFacts& facts) {
    const auto signal = fatal_signal(facts.end);
    if (signal == kill_signal && (facts.kernel_log_read || facts.oom_kills))
        return because(CauseKind::killed_from_outside, killed_text(facts));
    if (signal == sigsegv)
        return because(CauseKind::memory_fault,
                       "the location is unknown: the kernel log has no entry, or is not readable");
    if (signal == sigbus && facts.shm_bytes > 0)
        return because(CauseKind::unknown,
                       cat("a bus error: a mapped file was truncated, or /dev/shm was full (now ",
                           mebibytes(facts.shm_free_bytes), " of ", mebibytes(facts.shm_bytes), " are free)"));
    return {};
}

FailureCause memory_fault(const MemoryFault& fault) {
    std::string text = "an invalid memory access (segmentation fault)";
    if (fault.address) text += *fault.address < 4096 ? std::string(", through a null pointer") : "";
    if (!fault.where.empty()) text += cat(", in ", fault.where, " (from the kernel log)");
    return because(CauseKind::memory_fault, text);
}

FailureCause not_started(const EndFacts& facts, const NotStarted& end) {
    const auto named = end.stage.starts_with("interpreter of ");
    if (!named) return {};
    const auto program = end.stage.substr(std::string_view("interpreter of ").size());
    if (facts.interpreter.empty())
        return because(CauseKind::missing_interpreter, cat(program, " was found, but its interpreter was not"));
    return because(CauseKind::missing_interpreter, cat(program, " needs the interpreter ", facts.interpreter,
                                                       ", which was not found: install it, or correct the first line"));
}

FailureCause decide(const EndFacts& facts) {
    if (const auto* never = std::get_if<NotStarted>(&facts.end)) return not_started(facts, *never);
    if (auto cause = cause_by_kernel_log(facts)) return *cause;
    if (auto cause = cause_by_counters(facts)) return *cause;
    const auto words = error_text(facts.message, facts.stderr_tail);
    const auto word = known_error(words);
    const bool about_shm = word && word->kind == CauseKind::shared_memory_full;
    if (auto cause = shared_memory(facts, about_shm)) return *cause;
    if (const auto* fault = event_about<MemoryFault>(facts)) return memory_fault(*fault);
    if (word && fatal_signal(facts.end) != kill_signal) return cause_by_text(facts, *word);
    if (auto cause = unnamed_gpu(facts, words)) return *cause;
    return cause_without_text(facts);
}

}  // namespace

std::string unnamed_gpu_errors(const KernelEvent& event) {
    const auto* gpu = std::get_if<GpuError>(&event);
    if (gpu == nullptr || gpu->pid != 0 || gpu->xid == xid_of_consequence) return {};
    return cat("the NVIDIA driver reported ", xid_text(*gpu));
}

FailureCause end_cause(const EndFacts& facts) {
    auto cause = decide(facts);
    cause.core_file = facts.core_file;
    return cause;
}

bool is_from_outside(CauseKind kind) {
    switch (kind) {
        case CauseKind::out_of_memory:
        case CauseKind::killed_from_outside:
        case CauseKind::shared_memory_full:
        case CauseKind::hardware_memory:
        case CauseKind::gpu_fault:
        case CauseKind::timer_expired:
        case CauseKind::hung: return true;
        default: return false;
    }
}

}  // namespace muster::agent
