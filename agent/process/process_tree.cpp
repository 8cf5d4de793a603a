#include "agent/process/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>

#include "agent/process/signal_handlers.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

std::optional<ProcessFacts> read_facts(int proc, const char* pid) {
    const auto path = cat(pid, "/stat");
    const FileDescriptor file(::openat(proc, path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) return std::nullopt;
    char line[1024];
    const auto size = ::read(file.get(), line, sizeof line);
    if (size <= 0) return std::nullopt;
    return parse_stat({line, static_cast<std::size_t>(size)});
}

constexpr std::string_view shells[] = {"sh", "dash", "bash", "ash", "busybox", "ksh", "ksh93", "mksh", "zsh"};

/// By the program's file: the name of the process is the script's.
bool is_shell(pid_t pid) {
    std::error_code failure;
    const auto file = std::filesystem::read_symlink(cat("/proc/", pid, "/exe"), failure);
    return std::ranges::find(shells, base_name(file.native())) != std::end(shells);
}

}  // namespace

std::optional<ProcessFacts> parse_stat(std::string_view line) {
    const auto open = line.find(" (");
    const auto close = line.rfind(") ");
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
    ProcessFacts facts;
    // After the name: state ppid pgrp session ..., CPU times are the 12th to the 15th, start time is the 20th.
    const auto fields = split(line.substr(close + 2), ' ');
    if (fields.size() < 20 || fields[0].size() != 1) return std::nullopt;
    facts.state = fields[0][0];
    std::uint64_t system_ticks = 0, ended_system_ticks = 0;
    const bool read = parse_number(line.substr(0, open), facts.pid) && parse_number(fields[1], facts.parent) &&
                      parse_number(fields[3], facts.session) && parse_number(fields[11], facts.cpu_ticks) &&
                      parse_number(fields[12], system_ticks) && parse_number(fields[13], facts.ended_children_ticks) &&
                      parse_number(fields[14], ended_system_ticks) && parse_number(fields[19], facts.start_time);
    if (!read) return std::nullopt;
    facts.cpu_ticks += system_ticks;
    facts.ended_children_ticks += ended_system_ticks;
    return facts;
}

std::vector<ProcessFacts> descendants_of(pid_t root, std::vector<ProcessFacts> all) {
    std::vector<ProcessFacts> found;
    std::vector<pid_t> generation{root};
    while (!generation.empty()) {
        std::vector<pid_t> next;
        const auto is_child = [&](const ProcessFacts& facts) {
            return std::ranges::find(generation, facts.parent) != generation.end();
        };
        const auto children =
            std::partition(all.begin(), all.end(), [&](const auto& facts) { return !is_child(facts); });
        for (auto child = children; child != all.end(); ++child) {
            if (child->pid != root) next.push_back(child->pid);
        }
        found.insert(found.end(), children, all.end());
        all.erase(children, all.end());
        generation = std::move(next);
    }
    return found;
}

std::vector<ProcessFacts> all_processes() {
    std::vector<ProcessFacts> all;
    const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), &::closedir);
    if (!proc) return all;
    while (const auto* entry = ::readdir(proc.get())) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
        if (const auto facts = read_facts(::dirfd(proc.get()), entry->d_name)) all.push_back(*facts);
    }
    return all;
}

std::optional<std::vector<pid_t>> listed_children(pid_t pid) {
    std::optional<std::vector<pid_t>> children;
    std::error_code failure;
    for (std::filesystem::directory_iterator task(cat("/proc/", pid, "/task"), failure), end; !failure && task != end;
         task.increment(failure)) {
        std::ifstream list(task->path() / "children");
        if (list && !children) children.emplace();
        for (pid_t child = 0; list >> child;) children->push_back(child);
    }
    return children;
}

std::vector<pid_t> programs_of_waiting_shell(pid_t leader) {
    const auto waits = [](pid_t pid) { return is_shell(pid) && handles_signal(pid, SIGINT); };
    if (!waits(leader)) return {};
    std::vector<pid_t> found;
    std::vector<pid_t> waiting{leader};
    // Parents come before their children.
    for (const auto& facts : descendants_of(leader, all_processes())) {
        if (facts.session != leader || !facts.alive()) continue;
        if (std::ranges::find(waiting, facts.parent) == waiting.end()) continue;
        found.push_back(facts.pid);
        if (waits(facts.pid)) waiting.push_back(facts.pid);
    }
    return found;
}

FileDescriptor open_pidfd(pid_t pid) {
    return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

void signal_process(const ProcessFacts& facts, int signal) {
    const auto pidfd = open_pidfd(facts.pid);
    if (!pidfd.valid()) {  // gone, or a kernel without pidfds, where the number must do
        if (errno == ENOSYS || errno == EPERM) ::kill(facts.pid, signal);
        return;
    }
    const FileDescriptor proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto now = read_facts(proc.get(), cat(facts.pid).c_str());
    if (now && now->start_time == facts.start_time) ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0);
}

}  // namespace muster::agent
