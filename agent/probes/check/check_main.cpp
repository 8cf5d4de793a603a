// muster-check LIMIT_MS PARENT_PID PROGRAM [ARG...]: runs a site's health check. It prints one line that says how the
// program ended (agent/doctor/health_verdict.h reads it), and behind it the end of the program's stdout and stderr:
//
//   exit CODE       as a shell counts: 128 and the number of the signal that ended it
//   limit           it did not end within LIMIT_MS
//   refused TEXT    it was not started
//
// A check that hangs is killed with all of its descendants, also with those that left its session: this process is
// their subreaper. The same happens at SIGTERM and when the process PARENT_PID, which started this one, is dead; then
// nothing is printed. What a check leaves behind when it ends by itself runs on.
//
// muster-check --folder FOLDER: prints the checks of a folder (health_folder.h): "check NAME" for each, "refused TEXT"
// for what is not run, and "end".
//
// muster-check --start PATH WORD...: judges the check PATH once more, and becomes the program WORD... with the file
// behind its links as the last argument. Exit code 126: it must not run, and stdout says why.
//
// A file system that does not answer hangs this process in either case, and not the agent.
//
// Exit codes: 0; 1 without a word: it was told to end; 2 wrong arguments.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "agent/probes/check/health_folder.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/system/end_with_parent.h"
#include "rendezvous/base/text/text.h"

namespace {

using namespace muster;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kept_bytes_max = 4096;  ///< Of the output: the reason is its last line.
/// A process in uninterruptible sleep does not end. It is left behind, and ends when its disk or driver answers.
constexpr auto kill_wait = std::chrono::seconds(2);

struct Check {
    pid_t pid = -1;
    FileDescriptor output;
    std::string tail{};
    int status = 0;
    bool ended = false;
};

/// Its stdin is /dev/null, and it leads a session of its own: a signal to this process's group is not for it.
std::string start(char** words, Check& check) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return cat("make a pipe: ", std::strerror(errno));
    check.output = FileDescriptor(ends[0]);
    const FileDescriptor childs_end(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, childs_end.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, childs_end.get(), STDERR_FILENO);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    const int failure = ::posix_spawnp(&check.pid, words[0], &actions, &attributes, words, environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    return failure == 0 ? std::string() : cat("start ", words[0], ": ", std::strerror(failure));
}

void read_output(Check& check) {
    constexpr int pieces_max = 64;  // one that prints without a pause must not keep its limit from being looked at
    char piece[4096];
    for (int i = 0; i < pieces_max && check.output.valid(); ++i) {
        const auto size = ::read(check.output.get(), piece, sizeof piece);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return;
        if (size == 0) return check.output.reset();
        check.tail.append(piece, static_cast<std::size_t>(size));
        if (check.tail.size() > kept_bytes_max) check.tail.erase(0, check.tail.size() - kept_bytes_max);
    }
}

/// Every child, also those that were adopted.
void reap(Check& check) {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != check.pid) continue;
        check.status = status;
        check.ended = true;
    }
}

/// Processes may start others meanwhile, so until none is left.
void kill_all(Check& check) {
    const auto deadline = Clock::now() + kill_wait;
    while (Clock::now() < deadline) {
        auto left = agent::descendants_of(::getpid(), agent::all_processes());
        std::erase_if(left, [](const auto& one) { return !one.alive(); });
        for (const auto& one : left) agent::signal_process(one, SIGKILL);
        reap(check);
        if (left.empty()) return;
        ::poll(nullptr, 0, 5);
    }
}

enum class Stop { ended, limit, told };

Stop watch(Check& check, int signals, Clock::time_point deadline) {
    while (!check.ended) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (left <= 0) return Stop::limit;
        pollfd waited[2] = {{signals, POLLIN, 0}, {check.output.valid() ? check.output.get() : -1, POLLIN, 0}};
        ::poll(waited, 2, static_cast<int>(std::min<long long>(left, 3'600'000)));
        read_output(check);
        signalfd_siginfo come;
        while (::read(signals, &come, sizeof come) == sizeof come)
            if (come.ssi_signo != SIGCHLD) return Stop::told;
        reap(check);
    }
    read_output(check);  // what it wrote last
    return Stop::ended;
}

int print_folder(const char* folder) {
    const auto found = agent::read_health_folder(folder);
    for (const auto& path : found.programs) std::printf("check %s\n", std::string(base_name(path)).c_str());
    for (const auto& why : found.refused) std::printf("refused %s\n", why.c_str());
    std::puts("end");
    return 0;
}

int start_judged(const char* path, char** words, int count) {
    constexpr int not_executable = 126;
    auto found = agent::check_to_run(path);
    if (found.refused.empty()) {
        std::vector<char*> arguments(words, words + count);
        arguments.push_back(found.program.data());
        arguments.push_back(nullptr);
        ::execvp(arguments[0], arguments.data());
        found.refused = cat("start ", arguments[0], ": ", std::strerror(errno));
    }
    std::puts(found.refused.c_str());
    return not_executable;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view order = argc > 1 ? argv[1] : "";
    if (order == "--folder" && argc == 3) {
        end_with_parent();
        return print_folder(argv[2]);
    }
    if (order == "--start" && argc > 3) return start_judged(argv[2], argv + 3, argc - 3);
    long long limit_ms = 0;
    pid_t parent = 0;
    if (argc < 4 || !parse_number(std::string_view(argv[1]), limit_ms) ||
        !parse_number(std::string_view(argv[2]), parent) || limit_ms <= 0) {
        std::fputs(
            "usage: muster-check LIMIT_MS PARENT_PID PROGRAM [ARG...] | --folder FOLDER | --start PATH WORD...\n",
            stderr);
        return 2;
    }
    const auto deadline = Clock::now() + std::chrono::milliseconds(limit_ms);
    end_with_parent();
    sigset_t waited;
    ::sigemptyset(&waited);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) ::sigaddset(&waited, signal);
    ::sigprocmask(SIG_BLOCK, &waited, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // and not SIGKILL: this process has to kill others first
    if (::getppid() != parent) return 1;
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const FileDescriptor signals(::signalfd(-1, &waited, SFD_NONBLOCK | SFD_CLOEXEC));
    Check check;
    if (const auto refused = start(argv + 3, check); !refused.empty()) {
        std::printf("refused %s\n", refused.c_str());
        return 0;
    }
    const auto stop = watch(check, signals.get(), deadline);
    if (stop != Stop::ended) kill_all(check);
    if (stop == Stop::told) return 1;
    if (stop == Stop::limit)
        std::puts("limit");
    else
        std::printf("exit %d\n", WIFEXITED(check.status) ? WEXITSTATUS(check.status) : 128 + WTERMSIG(check.status));
    std::fwrite(check.tail.data(), 1, check.tail.size(), stdout);
    return 0;
}
