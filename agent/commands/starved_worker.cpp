#include "agent/commands/starved_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "agent/evidence/memory_group.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/system/detached_child.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Of the group. The worker's score is worse by as much (oom_score_adj counts in thousandths of the limit), so that it
/// is chosen before a copy of this process, which is smaller.
constexpr std::string_view limit_bytes = "67108864";
constexpr int limit_mib = 64;
constexpr int piece_count = 256;
constexpr off_t piece_bytes = off_t{1} << 20;
/// The kernel's first choice.
constexpr std::string_view worst_score = "1000";
constexpr int patience_ms = 10'000;
constexpr int removal_ms = 1'000;  // so long its counter can be read

Result<void> write_to(const std::string& path, std::string_view text) {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file.valid() || ::write(file.get(), text.data(), text.size()) < 0)
        return error_from_errno(errno, cat("write ", path));
    return {};
}

const char* limit_file(bool second) {
    return second ? "memory.max" : "memory.limit_in_bytes";
}

/// A group with a limit of its own for this worker: below `own`, or beside it.
Result<std::string> make_group(const std::string& own, bool second, std::int32_t pid) {
    for (const auto& parent : {own, own.substr(0, own.rfind('/'))}) {
        auto directory = cat(parent, "/muster-fault-", pid);
        if (::access(cat(parent, "/cgroup.procs").c_str(), F_OK) != 0) break;  // the highest group that is shown
        if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST)
            return error_from_errno(errno, cat("create the cgroup ", directory,
                                               " (needs root, or a cgroup that is delegated to this user)"));
        if (::access(cat(directory, '/', limit_file(second)).c_str(), W_OK) == 0) return directory;
        ::rmdir(directory.c_str());
    }
    return Error{
        Errc::unsupported,
        cat("groups below ", own,
            " and beside it have no memory limit: cgroup.subtree_control does not enable the memory controller there")};
}

// In a detached child: system calls alone.

/// Joins the group and asks for memory until the worker is gone. The kernel may choose this process too, after it.
void press(const char* procs, int process) {
    const int file = ::open(procs, O_WRONLY | O_CLOEXEC);
    if (file < 0 || ::write(file, "0", 1) != 1) return;
    // Counted as the group's memory and not as this process's own.
    const int memory = static_cast<int>(::syscall(SYS_memfd_create, "muster-fault", 0));
    for (int i = 0; i < piece_count && wait_beside(process, 0); ++i)
        ::fallocate(memory, 0, i * piece_bytes, piece_bytes);
}

void press_and_clear(const char* directory, const char* procs, int process) {
    const auto child = ::fork();
    if (child == 0) {
        press(procs, process);
        ::_exit(0);
    }
    int status = 0;
    if (child > 0) ::waitpid(child, &status, 0);
    wait_beside(process, patience_ms);
    ::poll(nullptr, 0, removal_ms);
    ::rmdir(directory);
}

}  // namespace

Result<StarvedWorker> StarvedWorker::starve(std::int32_t pid, int process) {
    const auto found = find_memory_group();
    if (!found) return Error{Errc::unsupported, "no memory cgroup is visible here, so the fault oom is not available"};
    const bool second = found->oom_file.ends_with("memory.events");
    const auto directory = MUSTER_TRY(make_group(found->group.path, second, pid));
    const auto removed = [&directory](Error error) {
        ::rmdir(directory.c_str());
        return error;
    };
    const auto procs = cat(directory, "/cgroup.procs");
    if (auto written = write_to(cat(directory, '/', limit_file(second)), limit_bytes); !written)
        return removed(written.error());
    if (auto chosen = write_to(cat("/proc/", pid, "/oom_score_adj"), worst_score); !chosen)
        return removed(chosen.error());
    if (auto moved = write_to(procs, cat(pid)); !moved) return removed(moved.error());
    const auto pressed = run_detached(
        process, [&directory, &procs, process] { press_and_clear(directory.c_str(), procs.c_str(), process); });
    if (!pressed) return pressed.error();
    return StarvedWorker(directory, second);
}

bool StarvedWorker::was_killed() const {
    return count_oom_kills(cat(directory_, second_ ? "/memory.events" : "/memory.oom_control")).value_or(0) > 0;
}

std::string StarvedWorker::words() const {
    const auto limit = cat(directory_, '/', limit_file(second_));
    std::int64_t peak = 0;
    const auto file = cat(directory_, second_ ? "/memory.peak" : "/memory.max_usage_in_bytes");
    const bool known = parse_number(trim(read_file(file)), peak);
    return cat("its limit was ", limit_mib, " MiB (", limit, ")",
               known ? cat(", peak usage ", peak >> 20, " MiB") : std::string());
}

}  // namespace muster::agent
