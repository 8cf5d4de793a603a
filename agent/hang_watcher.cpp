#include "agent/hang_watcher.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/read_file.h"
#include "rendezvous/base/text.h"

namespace muster::agent {

namespace {

constexpr Duration look_pause = 1s;

FileDescriptor open_process(std::int32_t pid) {
    return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

/// The state, and the processor time of all threads: fields 3, 14 and 15 of /proc/PID/stat, the first of which follows
/// the name in brackets, which may hold anything.
void read_stat(std::int32_t pid, WorkerLook& look) {
    const auto stat = read_file(cat("/proc/", pid, "/stat"));
    const auto name_end = stat.rfind(')');
    if (name_end == std::string::npos) return;
    const auto fields = split(std::string_view(stat).substr(name_end + 1), ' ');  // [0] is empty, [1] the state
    constexpr std::size_t user = 12, system = 13;
    if (fields.size() <= system || fields[1].empty()) return;
    look.state = fields[1].front();
    std::int64_t user_ticks = 0, system_ticks = 0;
    if (!parse_number(fields[user], user_ticks) || !parse_number(fields[system], system_ticks)) return;
    static const std::int64_t ticks_per_second = ::sysconf(_SC_CLK_TCK);
    look.cpu = Duration(1s) * (user_ticks + system_ticks) / ticks_per_second;
}

void read_io(std::int32_t pid, WorkerLook& look) {
    const auto io = read_file(cat("/proc/", pid, "/io"));
    for (const auto line : split(io, '\n')) {
        std::uint64_t bytes = 0;
        const bool counts = line.starts_with("rchar: ") || line.starts_with("wchar: ");
        if (counts && parse_number(line.substr(7), bytes)) look.io_bytes += bytes;
    }
}

}  // namespace

void HangWatcher::begin_round(std::uint32_t rank_base) {
    rank_base_ = rank_base;
    workers_.clear();
    watch_.begin_round();
    resting_ = false;
    arm();
}

void HangWatcher::worker_started(std::uint32_t local_rank, std::int32_t pid) {
    workers_[local_rank] = Worker{pid, open_process(pid), {}};
}

FailureCause HangWatcher::worker_ended(std::uint32_t local_rank) {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) return {};
    const auto why = std::move(found->second.ended_why);
    workers_.erase(found);
    return why.empty() ? FailureCause{} : FailureCause{CauseKind::hung, why, {}};
}

void HangWatcher::rest() {
    resting_ = true;
    timer_.cancel();
}

void HangWatcher::arm() {
    timer_.expires_after(look_pause);
    timer_.async_wait([this, life = std::weak_ptr(life_)](boost::system::error_code cancelled) {
        if (cancelled || life.expired() || resting_) return;
        look();
        arm();
    });
}

WorkerLook HangWatcher::look_at(std::uint32_t local_rank, const Worker& worker) const {
    WorkerLook look;
    look.local_rank = local_rank;
    look.rank = static_cast<std::int32_t>(rank_base_ + local_rank);
    look.pid = worker.pid;
    read_stat(worker.pid, look);
    read_io(worker.pid, look);
    auto told = ask(local_rank);
    look.section = std::move(told.section);
    look.operation = std::move(told.operation);
    look.where = read_file(cat("/proc/", worker.pid, "/wchan"));
    if (look.where == "0") look.where.clear();  // it runs, or we may not know
    return look;
}

void HangWatcher::look() {
    std::vector<WorkerLook> looks;
    for (const auto& [local_rank, worker] : workers_) looks.push_back(look_at(local_rank, worker));
    const auto step = watch_.look(looks, std::chrono::steady_clock::now());
    for (const auto& line : step.notices)
        if (on_notice) on_notice(line);
    for (const auto& order : step.ends) end(order);
}

void HangWatcher::end(const EndOrder& order) {
    const auto found = workers_.find(order.local_rank);
    if (found == workers_.end()) return;
    auto& worker = found->second;
    const bool sent =
        worker.pidfd.valid() && ::syscall(SYS_pidfd_send_signal, worker.pidfd.get(), SIGKILL, nullptr, 0) == 0;
    if (sent)
        worker.ended_why = order.why;
    else
        log(LogLevel::warning, "rank ", rank_base_ + order.local_rank, " hangs and cannot be ended: ", order.why);
}

}  // namespace muster::agent
