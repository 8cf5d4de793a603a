#include "tests/integration/checkpoint/tracer.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include <linux/ptrace.h>  // behind sys/ptrace.h, which it would break otherwise

#include "rendezvous/base/check.h"
#include "tests/support/end_with_test.h"

namespace muster::test {

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t mark_magic = 0x6d757374;
/// How long an agent takes to see one rank's end and kill the others.
constexpr auto agent_delay = 2ms;
constexpr auto poll_interval = 1ms;

long trace(int request, pid_t thread, std::uintptr_t address = 0, std::uintptr_t data = 0) {
    return ::ptrace(static_cast<__ptrace_request>(request), thread, address, data);
}

#if defined(__x86_64__)
using Register = decltype(&user_regs_struct::rax);

void set_register(pid_t thread, Register which, std::int64_t value) {
    user_regs_struct registers{};
    MUSTER_CHECK(trace(PTRACE_GETREGS, thread, 0, reinterpret_cast<std::uintptr_t>(&registers)) == 0, errno);
    registers.*which = static_cast<std::uint64_t>(value);
    MUSTER_CHECK(trace(PTRACE_SETREGS, thread, 0, reinterpret_cast<std::uintptr_t>(&registers)) == 0, errno);
}

void skip_call(pid_t thread) {
    set_register(thread, &user_regs_struct::orig_rax, -1);
}

void set_result(pid_t thread, std::int64_t result) {
    set_register(thread, &user_regs_struct::rax, result);
}
#else
void skip_call(pid_t) {
    MUSTER_CHECK(false, "written for x86-64");
}

void set_result(pid_t, std::int64_t) {}
#endif

pid_t process_of(pid_t thread) {
    std::ifstream status("/proc/" + std::to_string(thread) + "/status");
    std::string word;
    while (status >> word) {
        pid_t process = 0;
        if (word == "Tgid:" && status >> process) return process;
    }
    return thread;
}

/// Lets waitpid() return when a run takes too long.
void ring_after(std::chrono::seconds limit) {
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &nothing, nullptr);
    ::alarm(static_cast<unsigned>(limit.count()));
}

pid_t fork_with(const std::function<int()>& body) {
    std::fflush(nullptr);
    const pid_t process = test::fork_with_test();
    MUSTER_CHECK(process >= 0, errno);
    if (process != 0) return process;
    ::_exit(body());
}

}  // namespace

bool is_mark(const SyscallStop& stop, int which) {
    return stop.number == SYS_sched_get_priority_max && stop.arguments[0] == mark_magic &&
           stop.arguments[1] == static_cast<std::uint64_t>(which);
}

void mark(int which) {
    ::syscall(SYS_sched_get_priority_max, mark_magic, static_cast<std::uint64_t>(which));
}

bool Tracer::allowed() {
    const pid_t process = fork_with([] { return ::pause(); });
    const bool can = trace(PTRACE_SEIZE, process, 0, PTRACE_O_EXITKILL) == 0;
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, __WALL);
    return can;
}

pid_t Tracer::start(const std::function<int()>& body) {
    const auto process = fork_with(body);
    alive_.insert(process);
    return process;
}

pid_t Tracer::start_watched(const std::function<int()>& body) {
    int gate[2];
    MUSTER_CHECK(::pipe(gate) == 0, errno);
    const auto process = start([&] {
        char byte = 0;
        ::close(gate[1]);
        if (::read(gate[0], &byte, 1) != 1) return 111;
        ::close(gate[0]);
        return body();
    });
    ::close(gate[0]);
    const auto options = PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    MUSTER_CHECK(trace(PTRACE_SEIZE, process, 0, options) == 0, errno);
    process_of_[process] = process;
    // Seizing does not stop it; only who has been stopped can be told to stop at system calls.
    MUSTER_CHECK(trace(PTRACE_INTERRUPT, process) == 0, errno);
    int status = 0;
    MUSTER_CHECK(::waitpid(process, &status, __WALL) == process && WIFSTOPPED(status), status);
    go_on(process);
    MUSTER_CHECK(::write(gate[1], "x", 1) == 1, errno);
    ::close(gate[1]);
    return process;
}

void Tracer::go_on(pid_t thread, int signal) {
    // ESRCH: it was killed meanwhile, and its end will be waited for.
    MUSTER_CHECK(trace(PTRACE_SYSCALL, thread, 0, static_cast<std::uintptr_t>(signal)) == 0 || errno == ESRCH, errno);
}

void Tracer::kill_all(pid_t first) {
    ::kill(first, SIGKILL);
    std::this_thread::sleep_for(agent_delay);
    for (const auto process : alive_) ::kill(process, SIGKILL);
    held_.clear();
}

void Tracer::ask(const SyscallStop& stop) {
    switch (watcher_(stop)) {
        case Next::go_on: return go_on(stop.thread);
        case Next::hold: held_.push_back(stop); return;
        case Next::fail:
            skip_call(stop.thread);
            failing_.insert(stop.thread);
            return go_on(stop.thread);
        case Next::kill_all: return kill_all(stop.process);
    }
}

void Tracer::handle(pid_t thread, int status) {
    if (!WIFSTOPPED(status)) {
        process_of_.erase(thread);
        calls_.erase(thread);
        if (alive_.erase(thread) != 0) ends_[thread] = status;
        return;
    }
    if (!process_of_.contains(thread)) process_of_[thread] = process_of(thread);
    const int signal = WSTOPSIG(status);
    if (signal != (SIGTRAP | 0x80)) return go_on(thread, status >> 16 != 0 ? 0 : signal);
    __ptrace_syscall_info facts{};
    if (trace(PTRACE_GET_SYSCALL_INFO, thread, sizeof facts, reinterpret_cast<std::uintptr_t>(&facts)) <= 0) {
        return go_on(thread);
    }
    SyscallStop stop{.process = process_of_[thread], .thread = thread};
    auto& [number, arguments] = calls_[thread];
    if (facts.op == PTRACE_SYSCALL_INFO_ENTRY) {
        number = facts.entry.nr;
        for (std::size_t i = 0; i < arguments.size(); ++i) arguments[i] = facts.entry.args[i];
    } else {
        stop.moment = Moment::exit;
        stop.result = facts.exit.rval;
        if (failing_.erase(thread) != 0) {
            stop.result = -EIO;
            set_result(thread, -EIO);
        }
    }
    stop.number = number;
    stop.arguments = arguments;
    ask(stop);
}

std::map<pid_t, int> Tracer::run(const Watcher& watcher, std::chrono::seconds limit) {
    watcher_ = watcher;
    const auto until = std::chrono::steady_clock::now() + limit;
    ring_after(limit + 1s);
    while (!alive_.empty()) {
        int status = 0;
        const bool looking = !held_.empty();
        const pid_t thread = ::waitpid(-1, &status, __WALL | (looking ? WNOHANG : 0));
        if (thread > 0) handle(thread, status);
        if (thread < 0) MUSTER_CHECK(errno == EINTR, errno);
        if (thread == 0) std::this_thread::sleep_for(poll_interval);
        for (const auto& stop : std::exchange(held_, {})) ask(stop);
        if (std::chrono::steady_clock::now() > until) {
            for (const auto process : alive_) ::kill(process, SIGKILL);
        }
    }
    ::alarm(0);
    return std::exchange(ends_, {});
}

Tracer::~Tracer() {
    for (const auto process : alive_) {
        ::kill(process, SIGKILL);
        ::waitpid(process, nullptr, __WALL);
    }
}

}  // namespace muster::test
