#include "agent/process/awaited_children.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

std::optional<std::uint64_t> hexadecimal(std::string_view text) {
    if (!text.starts_with("0x")) return std::nullopt;
    std::uint64_t number = 0;
    const auto read = std::from_chars(text.data() + 2, text.data() + text.size(), number, 16);
    if (read.ec != std::errc{}) return std::nullopt;
    return number;
}

/// A fork that has not called exec has its parent's words.
bool is_part_of(pid_t child, pid_t leader) {
    const auto words = read_file(cat("/proc/", child, "/cmdline"));
    if (words.empty()) return false;
    return words == read_file(cat("/proc/", leader, "/cmdline")) || words.find("--multiprocessing-fork") != words.npos;
}

}  // namespace

std::vector<ProcessFacts> AwaitedChildren::due(const std::vector<AwaitedChild>& seen, Instant now) {
    std::vector<ProcessFacts> found;
    std::erase_if(waits_, [&](const auto& entry) {
        return !entry.second.told &&
               std::ranges::none_of(seen, [&](const auto& child) { return child.facts.pid == entry.first; });
    });
    for (const auto& child : seen) {
        auto& wait = waits_[child.facts.pid];
        if (wait.start_time != child.facts.start_time)
            wait = {
                .start_time = child.facts.start_time, .cpu_ticks = child.cpu_ticks, .since = now, .idle_since = now};
        if (wait.told) continue;
        if (child.in_io || wait.cpu_ticks != child.cpu_ticks) wait.idle_since = now;
        wait.cpu_ticks = child.cpu_ticks;
        wait.told = now - wait.idle_since >= patience_.idle || now - wait.since >= patience_.busy;
        if (wait.told) found.push_back(child.facts);
    }
    return found;
}

std::vector<pid_t> AwaitedChildren::told() const {
    std::vector<pid_t> pids;
    for (const auto& [pid, wait] : waits_)
        if (wait.told) pids.push_back(pid);
    return pids;
}

pid_t awaited_pid(std::string_view syscall_line) {
    // "61 0x4d2 0x7ffd11c530ac 0x0 ...": the call's number and its arguments; "running" where it is in none.
    const auto fields = split(trim(syscall_line), ' ');
    long call = 0;
    if (fields.size() < 3 || !parse_number(fields[0], call)) return 0;
    const auto first = hexadecimal(fields[1]);
    const auto second = hexadecimal(fields[2]);
    if (!first || !second) return 0;
    // Of -1 and the like only the lower half may be filled. They mean any child, which says nothing about this one.
    if (call == SYS_wait4) return std::max(0, static_cast<pid_t>(*first));
    if (call == SYS_waitid && *first == static_cast<std::uint64_t>(P_PID))
        return std::max(0, static_cast<pid_t>(*second));
    return 0;
}

std::vector<AwaitedChild> find_awaited(const std::vector<pid_t>& waiters, std::uint64_t born_before) {
    std::vector<AwaitedChild> found;
    std::vector<ProcessFacts> all;  // read only where somebody waits: a host may have many thousands
    for (const auto waiter : waiters) {
        const auto pid = awaited_pid(read_file(cat("/proc/", waiter, "/syscall")));
        if (pid == 0) continue;
        if (all.empty()) all = all_processes();
        const auto child = std::ranges::find(all, pid, &ProcessFacts::pid);
        if (child == all.end() || child->parent != waiter || !child->alive()) continue;
        if (child->start_time >= born_before || !is_part_of(pid, waiter)) continue;
        AwaitedChild awaited{.facts = *child, .cpu_ticks = child->cpu_ticks, .in_io = child->state == 'D'};
        for (const auto& below : descendants_of(pid, all)) {
            awaited.cpu_ticks += below.cpu_ticks;
            awaited.in_io = awaited.in_io || below.state == 'D';
        }
        found.push_back(awaited);
    }
    return found;
}

std::uint64_t ticks_since_boot() {
    auto hundredths = read_file("/proc/uptime");  // "4711.25 9000.10"
    hundredths.resize(std::min(hundredths.find(' '), hundredths.size()));
    std::erase(hundredths, '.');
    std::uint64_t number = 0;
    if (!parse_number(std::string_view(hundredths), number)) return 0;
    return number * static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)) / 100;
}

}  // namespace muster::agent
