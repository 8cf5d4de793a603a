#include "agent/evidence/end_evidence.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/diagnosis/core_dump.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Records read at one look. A kernel that logs more hides the rest until the next one, and nothing waits for it.
constexpr int records_max = 2000;
/// The newest of a round are kept: an end is explained by those that came last.
constexpr std::ptrdiff_t events_max = 1000;
constexpr std::size_t record_bytes_max = 8192;  // what one read of /dev/kmsg may give
constexpr std::size_t first_line_bytes_max = 256;
/// The first namespace's number, the same on every Linux (include/linux/proc_ns.h). The log has its pids.
constexpr std::string_view first_pid_namespace = "pid:[4026531836]";

bool in_first_pid_namespace() {
    std::error_code failure;
    return std::filesystem::read_symlink("/proc/self/ns/pid", failure).string() == first_pid_namespace;
}

/// What a script's "#!" line names.
std::string interpreter_of(const std::string& program) {
    const auto line = read_start_of_file(program, first_line_bytes_max);
    if (!line.starts_with("#!")) return {};
    const auto rest = trim(std::string_view(line).substr(2, line.find('\n') - 2));
    return std::string(rest.substr(0, rest.find_first_of(" \t")));
}

std::string core_file_of(const WorkerEnded& ended, const std::string& host, std::int64_t since_s) {
    const auto* signaled = std::get_if<Signaled>(&ended.end);
    if (signaled == nullptr || !signaled->core_dumped) return {};
    std::error_code failure;
    const auto place = core_dump_place(read_file("/proc/sys/kernel/core_pattern"),
                                       trim(read_file("/proc/sys/kernel/core_uses_pid")) == "1",
                                       {.pid = ended.pid,
                                        .signal = signaled->signal,
                                        .uid = ::getuid(),
                                        .gid = ::getgid(),
                                        .host = host,
                                        .directory = std::filesystem::current_path(failure).string()});
    return place.pattern.empty() ? place.words : EndEvidence::newest_core(place.pattern, since_s);
}

std::string_view state_text(char state) {
    switch (state) {
        case 'D': return "in uninterruptible sleep";
        case 'R': return "running";
        case 'S': return "asleep";
        case 'T':
        case 't': return "stopped";
        case 'Z': return "dead, not yet reaped";
        default: return "in an unknown state";
    }
}

FileDescriptor open_kernel_log() {
    if (!in_first_pid_namespace()) return {};
    return FileDescriptor(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

}  // namespace

EndEvidence::EndEvidence() : EndEvidence(find_memory_group(), open_kernel_log()) {
    if (group_ && !group_->kills_all.empty())
        log(LogLevel::warning, group_->kills_all,
            " is 1: if memory runs out, the kernel kills muster together with its workers, and no report is written; "
            "set it to 0 (systemd: OOMPolicy=continue)");
}

EndEvidence::EndEvidence(std::optional<FoundMemoryGroup> group, FileDescriptor kernel_log)
    : group_(std::move(group)), kernel_log_(std::move(kernel_log)) {}

void EndEvidence::begin_round() {
    using namespace std::chrono;
    round_began_s_ = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
    oom_kills_.begin(count_kills());
    kernel_events_.clear();
    if (kernel_log_.valid()) ::lseek(kernel_log_.get(), 0, SEEK_END);
}

void EndEvidence::look(Instant now) {
    // In this order: the kernel counts a kill before it tells of it.
    const int told = read_kernel_log();
    oom_kills_.count(count_kills(), now);
    for (int i = 0; i < told; ++i) oom_kills_.explain_one();
}

int EndEvidence::read_kernel_log() {
    int oom_kills = 0;
    char record[record_bytes_max];
    for (int i = 0; kernel_log_.valid() && i < records_max; ++i) {
        const auto size = ::read(kernel_log_.get(), record, sizeof record);
        if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: overwritten meanwhile; the next one
        if (size <= 0) break;
        auto event = parse_kernel_line({record, static_cast<std::size_t>(size)});
        if (!event) continue;
        const bool is_flood = std::ssize(kernel_events_) >= events_max;
        if (const auto news = unnamed_gpu_errors(*event); !news.empty() && !is_flood) log(LogLevel::warning, news);
        if (std::holds_alternative<OomKill>(*event)) ++oom_kills;
        kernel_events_.push_back(std::move(*event));
    }
    if (std::ssize(kernel_events_) > events_max)
        kernel_events_.erase(kernel_events_.begin(), kernel_events_.end() - events_max);
    return oom_kills;
}

FailureCause EndEvidence::cause_of(const WorkerEnded& ended, const std::string& message, const std::string& host,
                                   Killer killer) {
    const auto now = std::chrono::steady_clock::now();
    look(now);
    EndFacts facts;
    facts.end = ended.end;
    facts.killer = killer;
    facts.pid = ended.pid;
    facts.message = message;
    facts.stderr_tail = ended.stderr_tail;
    facts.kernel_events = kernel_events_;
    facts.kernel_log_read = kernel_log_.valid();
    if (group_) {
        facts.memory_group = group_->group;
        facts.memory_group->peak_bytes = group_->peak_bytes();
    }
    facts.oom_kills = oom_kills_.unexplained(now);
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        facts.address_space_limit_bytes = static_cast<std::int64_t>(limit.rlim_cur);
    struct statvfs shm {};
    if (::statvfs("/dev/shm", &shm) == 0) {
        facts.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
        facts.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
    }
    if (const auto* never = std::get_if<NotStarted>(&ended.end); never != nullptr) {
        constexpr std::string_view stage = "interpreter of ";
        if (never->stage.starts_with(stage)) facts.interpreter = interpreter_of(never->stage.substr(stage.size()));
    }
    facts.core_file = core_file_of(ended, host, round_began_s_);
    auto cause = end_cause(facts);
    // One kill explains one end: who dies by a SIGKILL of another kind later is not to be taken for it. Where the log
    // names this one, that has been counted.
    const bool told = std::ranges::any_of(kernel_events_, [&](const KernelEvent& event) {
        const auto* kill = std::get_if<OomKill>(&event);
        return kill != nullptr && kill->pid == ended.pid;
    });
    if (cause.kind == CauseKind::out_of_memory && !told) oom_kills_.explain_one();
    return cause;
}

std::string EndEvidence::newest_core(const std::string& pattern, std::int64_t since_s) {
    // A file server's clock may be behind ours.
    constexpr std::int64_t clocks_differ_s = 5;
    glob_t files{};
    std::string newest;
    std::pair<std::int64_t, std::int64_t> newest_time(since_s - clocks_differ_s, -1);
    if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &files) == 0) {
        for (std::size_t i = 0; i < files.gl_pathc; ++i) {
            struct stat facts {};
            if (::stat(files.gl_pathv[i], &facts) != 0) continue;
            const std::pair<std::int64_t, std::int64_t> written(facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
            if (written <= newest_time) continue;
            newest = files.gl_pathv[i];
            newest_time = written;
        }
    }
    ::globfree(&files);
    return newest.empty() ? cat("written to ", pattern) : newest;
}

std::string EndEvidence::describe_unkillable(const std::vector<std::int32_t>& pids) {
    constexpr std::size_t listed_max = 8;
    std::string out = pids.size() == 1 ? "process " : "processes ";
    for (std::size_t i = 0; i < pids.size() && i < listed_max; ++i) {
        const auto stat = read_file(cat("/proc/", pids[i], "/stat"));
        const auto name_end = stat.rfind(')');
        out += cat(i > 0 ? ", " : "", pids[i]);
        if (name_end == std::string::npos || name_end + 2 >= stat.size()) continue;
        const auto name_begin = stat.find('(') + 1;
        const auto where = read_file(cat("/proc/", pids[i], "/wchan"));
        const bool known = !where.empty() && where != "0";
        out += cat(" (", stat.substr(name_begin, name_end - name_begin), ", ", state_text(stat[name_end + 2]),
                   known ? cat(" in ", where) : std::string(), ")");
    }
    return pids.size() > listed_max ? cat(out, " and ", pids.size() - listed_max, " more") : out;
}

}  // namespace muster::agent
