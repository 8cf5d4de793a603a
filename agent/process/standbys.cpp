#include "agent/process/standbys.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <filesystem>

#include "agent/process/standby_program.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace wire = guardian_wire;

namespace {

/// Until one has been measured. torch alone takes 200 to 400 MiB.
constexpr std::size_t assumed_bytes = std::size_t{512} << 20;
/// Between two looks at the free memory, and between two at an import that takes long.
constexpr Duration look_again = 30s;

/// What a process has for itself: without the files that it maps, such as libraries, which the workers share. statm is
/// read from counters; smaps_rollup would wait for the lock of a process that maps a file on a slow disk.
std::size_t memory_bytes(std::int32_t pid) {
    if (pid <= 0) return 0;
    const auto text = read_file(cat("/proc/", pid, "/statm"));
    const auto fields = split(text, ' ');
    std::size_t resident = 0, shared = 0;
    if (fields.size() < 3 || !parse_number(fields[1], resident) || !parse_number(fields[2], shared)) return 0;
    return (resident - std::min(resident, shared)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// As be_normal() of the standby process itself.
void end_idle_priority(std::int32_t pid) {
    std::error_code failure;
    auto thread = std::filesystem::directory_iterator(cat("/proc/", pid, "/task"), failure);
    for (; !failure && thread != std::filesystem::directory_iterator(); thread.increment(failure)) {
        pid_t number = 0;
        const sched_param normal{};
        if (parse_number(thread->path().filename().string(), number) && ::sched_getscheduler(number) == SCHED_IDLE)
            ::sched_setscheduler(number, SCHED_OTHER, &normal);
    }
}

/// The last line that is not empty, of at most 200 bytes.
std::string last_line(const FileDescriptor& file) {
    struct stat facts {};
    if (!file.valid() || ::fstat(file.get(), &facts) != 0) return {};
    std::string text(std::min<std::size_t>(static_cast<std::size_t>(facts.st_size), 4096), '\0');
    const auto size = ::pread(file.get(), text.data(), text.size(), facts.st_size - static_cast<off_t>(text.size()));
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    const auto lines = trim(text);
    return std::string(lines.substr(lines.rfind('\n') + 1).substr(0, 200));
}

}  // namespace

Standbys::Standbys(boost::asio::io_context& context, StandbyPlan plan, Owner owner)
    : timer_(context),
      plan_(std::move(plan)),
      owner_(std::move(owner)),
      table_(plan_.count_max),
      measured_bytes_(assumed_bytes) {}

std::uint64_t Standbys::choose(const WorkerCommand& command) {
    const auto choice = table_.take(command, std::chrono::steady_clock::now());
    facts_.erase(choice.id);
    for (const auto id : choice.discarded) {
        owner_.end(id);
        facts_.erase(id);
    }
    if (!choice.why_not.empty()) {
        if (normal_starts_.empty()) why_not_ = choice.why_not;
        normal_starts_.push_back(cat(command.local_rank));
    }
    return choice.id;
}

void Standbys::expect(const std::vector<WorkerCommand>& commands, std::function<void()> when_ready) {
    if (commands.empty() && when_ready) when_ready();
    if (commands.empty()) return;
    when_ready_ = std::move(when_ready);
    ready_by_ = std::chrono::steady_clock::now() + standby_import_max;
    for (const auto& command : commands) table_.expect(command);
    has_workers_ = true;
    arm(Duration::zero());
}

void Standbys::round_begun() {
    if (!normal_starts_.empty())
        owner_.notice(cat("warm workers: local rank ", join(normal_starts_, ", "), " starts normally: ", why_not_));
    normal_starts_.clear();
    has_workers_ = plan_.count_max > 0;
    if (has_workers_) arm(plan_.start_after);
    if (facts_.size() != count_told_) tell();
}

void Standbys::rest() {
    has_workers_ = false;
    timer_.cancel();
}

void Standbys::refused(std::uint32_t local_rank) {
    owner_.notice(cat("warm workers: local rank ", local_rank,
                      " was started normally: its standby process did not take over (it had ended, or gave no "
                      "answer within 0.5 s)"));
}

void Standbys::arm(Duration wait) {
    call_after(timer_, wait, life_.guard([this] { look(); }));
}

void Standbys::look() {
    if (!has_workers_) return;
    const auto now = std::chrono::steady_clock::now();
    hurry(now);
    start_next(now);
    tell();
    const bool over = now >= ready_by_ || !table_.is_importing(now);
    auto next = when_ready_ && !over ? std::min(now + look_again, ready_by_) : now + look_again;
    for (const auto& [id, facts] : facts_) next = std::min(next, facts.hurried_at);
    arm(next - now);
    if (when_ready_ && over) std::exchange(when_ready_, nullptr)();
}

void Standbys::tell() {
    native::StandbysSeen seen{.count = static_cast<std::uint32_t>(facts_.size())};
    for (const auto& [id, facts] : facts_) seen.memory_bytes += memory_bytes(facts.pid);
    if (seen.count > 0 || count_told_ > 0) owner_.seen(seen);
    count_told_ = seen.count;
}

void Standbys::hurry(Instant now) {
    for (auto& [id, facts] : facts_) {
        if (now < facts.hurried_at) continue;
        facts.hurried_at = facts.pid > 0 ? no_deadline : now + 1s;  // its pid is not known yet
        if (facts.pid <= 0) continue;
        end_idle_priority(facts.pid);
        log(LogLevel::debug, "the standby process of local rank ", facts.local_rank, " (pid ", facts.pid,
            ") imports with normal priority now");
    }
}

void Standbys::start_next(Instant now) {
    const auto worker = table_.next(now);
    if (!worker) return;
    if (!has_memory()) {
        log(LogLevel::info, "no standby process for local rank ", worker->local_rank, ": less than ",
            2 * measured_bytes_ >> 20, " MiB of memory are free");
        return;
    }
    std::vector<FileDescriptor> streams;
    for (const char* name : {"muster-standby-stdout", "muster-standby-stderr"})
        streams.emplace_back(::memfd_create(name, MFD_CLOEXEC));
    if (!streams[0].valid() || !streams[1].valid()) return;
    const auto id = owner_.next_id();
    // A launcher that is idle itself has idle workers.
    const bool imports_idly = !when_ready_ && ::sched_getscheduler(0) == SCHED_OTHER;
    facts_[id] = {.pid = 0,
                  .local_rank = worker->local_rank,
                  .stderr_file = FileDescriptor(::dup(streams[1].get())),
                  .hurried_at = imports_idly ? now + plan_.idle_import_max : no_deadline};
    table_.started(worker->local_rank, id, now);
    const auto priority = imports_idly ? StandbyImport::idle : StandbyImport::waited_for;
    owner_.spawn(id, standby_command(*worker, plan_.imports, priority), std::move(streams));
}

bool Standbys::handle(const wire::Message& message) {
    if (const auto* spawned = std::get_if<wire::Spawned>(&message)) {
        const auto known = facts_.find(spawned->id);
        if (known == facts_.end()) return false;
        known->second.pid = spawned->pid;
        return true;
    }
    if (const auto* ready = std::get_if<wire::StandbyReady>(&message)) {
        became_ready(*ready);
        return true;
    }
    const auto* end = std::get_if<wire::Ended>(&message);
    if (end == nullptr || !facts_.contains(end->id)) return false;
    ended(end->id, end->end);
    return true;
}

void Standbys::became_ready(const wire::StandbyReady& ready) {
    const auto known = facts_.find(ready.id);
    if (known == facts_.end()) return;
    known->second.hurried_at = no_deadline;
    table_.ready(ready.id, ready.of_own_slot);
    if (const auto bytes = memory_bytes(known->second.pid); bytes > 0) measured_bytes_ = bytes;
    log(LogLevel::info, "the standby process of local rank ", known->second.local_rank, " (pid ", known->second.pid,
        ") is ready; it has ", measured_bytes_ >> 20, " MiB of memory");
    arm(Duration::zero());
}

void Standbys::ended(std::uint64_t id, const WorkerEnd& how) {
    const auto& facts = facts_[id];
    const auto line = last_line(facts.stderr_file);
    const auto why = cat("its standby process ended: ", describe(how), line.empty() ? "" : cat(" (", line, ")"));
    log(LogLevel::info, "local rank ", facts.local_rank, ": ", why);
    facts_.erase(id);
    if (table_.ended(id, why)) arm(Duration::zero());
}

void Standbys::end() {
    if (!facts_.empty()) owner_.end(0);
    when_ready_ = nullptr;
    forget();
    table_.clear();
}

void Standbys::forget() {
    rest();
    table_.lose();
    facts_.clear();
    if (count_told_ > 0) tell();
}

}  // namespace muster::agent
