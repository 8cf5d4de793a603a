#include "launcher/host/node_pairs.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "agent/process/process_tree.h"
#include "agent/process/side_process.h"
#include "launcher/host/ending_signals.h"
#include "launcher/scheduler/kubernetes_pod.h"
#include "launcher/scheduler/mpi_process.h"
#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr Duration join_timeout_default = 10min;  // of --rdzv-conf
/// A result of 2,048 nodes has half a MiB.
constexpr std::size_t result_bytes_max = std::size_t{4} << 20;

std::vector<std::string> job_words(const PairsJob& job) {
    // A worker that hangs is a finding of the search, which ends the job then; the job's own limit would drop the
    // result. The site's own checks judge the node for other jobs; one may be muster doctor itself.
    std::vector<std::string> words{"--nproc-per-node", "1", "--max-restarts",     "0", "--preflight",  "off",
                                   "--hang-timeout",   "0", "--shutdown-timeout", "3", "--health-dir", "none"};
    words.insert(words.end(), job.options.begin(), job.options.end());
    words.insert(words.end(), {"--no-python", agent::side_program("muster-pairs"), cat(job.expected_count)});
    return words;
}

/// This process's variables, without some, and with the place of the result and the limits: they are no arguments,
/// because those of all nodes are compared.
std::vector<std::string> job_variables(const PairsJob& job, const std::string& result) {
    std::string limits;
    for (const auto* name : {"clock-ms", "link-slow-percent", "lost-permille"})
        limits += cat(limits.empty() ? "" : " ", name, '=', job.limits.of(name));
    std::vector<std::string> variables{cat("MUSTER_PAIRS_FILE=", result), cat("MUSTER_PAIRS_LIMITS=", limits)};
    variables.insert(variables.end(), job.with.begin(), job.with.end());
    for (char** one = environ; *one != nullptr; ++one) {
        const std::string_view variable(*one);
        const auto name = variable.substr(0, variable.find('='));
        if (std::ranges::find(job.without, name) == job.without.end()) variables.emplace_back(variable);
    }
    return variables;
}

std::vector<char*> as_pointers(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (auto& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
}

/// While it lives, the signals that end this process wait, because the file of the result is to be removed before.
class HeldSignals {
  public:
    explicit HeldSignals(InterruptedTest interrupted) {
        ::pthread_sigmask(SIG_BLOCK, nullptr, &before_);
        sigset_t held;
        ::sigemptyset(&held);
        for (const auto& [number, action] : ending_signals()) {
            if (number == SIGINT && interrupted == InterruptedTest::is_reported) continue;
            if (::sigismember(&before_, number) == 0) ::sigaddset(&held, number);
        }
        come_ = FileDescriptor(::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
        if (come_.valid()) ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
    }
    ~HeldSignals() { release(); }
    HeldSignals& operator=(HeldSignals&&) = delete;

    /// Those that have come take effect. Also for a child before it becomes another program.
    void release() const { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    /// Readable when one has come. It is not read, so that it still takes effect.
    [[nodiscard]] int come() const { return come_.get(); }

  private:
    sigset_t before_{};
    FileDescriptor come_;
};

/// Waits until the job's muster ends, and returns how. One that hangs, or that somebody has stopped, is killed and is
/// an error. Its guardian then kills its worker, and the other nodes lose this one. A held signal ends the wait at
/// once: the job's muster ends with this process.
Result<siginfo_t> wait_for_job(pid_t pid, Duration limit, const HeldSignals& signals) {
    constexpr int look_interval_ms = 1000, stopped_looks_max = 10;  // it may go on by then, as after Ctrl-Z
    constexpr int killed_ms = 5000;                                 // one that waits for a disk does not end even then
    const auto job = agent::open_pidfd(pid);
    const auto wait = [pid](siginfo_t& change, int options) {
        return ::waitid(P_PID, static_cast<id_t>(pid), &change, options | WNOHANG) == 0;
    };
    // Only so that an end is seen at once: without it, as on an old kernel, it is at the next look.
    pollfd seen[] = {{job.get(), POLLIN, 0}, {signals.come(), POLLIN, 0}};
    const auto begin = std::chrono::steady_clock::now();
    std::string why;
    for (int stopped_looks = 0; why.empty(); ::poll(seen, 2, look_interval_ms)) {
        if (seen[1].revents != 0) return Error{Errc::cancelled, "this process was stopped during the test"};
        siginfo_t change{};
        if (!wait(change, WEXITED | WSTOPPED | WNOWAIT)) return error_from_errno(errno, "wait for muster of the test");
        const bool is_stopped = change.si_code == CLD_STOPPED;
        if (change.si_pid == pid && !is_stopped) {
            wait(change, WEXITED);
            return change;
        }
        stopped_looks = is_stopped ? stopped_looks + 1 : 0;
        if (stopped_looks > stopped_looks_max)
            why = "muster of the test on this node was stopped (SIGSTOP), and was killed after 10 s";
        else if (std::chrono::steady_clock::now() - begin >= limit)
            why = cat("muster of the test on this node did not end, and was killed after ", describe(limit));
    }
    ::kill(pid, SIGKILL);
    ::poll(seen, 1, killed_ms);
    siginfo_t killed{};
    wait(killed, WEXITED);
    return Error{Errc::timed_out, why};
}

/// How it ended, or why that is not known.
Result<siginfo_t> run_job(const PairsJob& job, const std::string& result, const HeldSignals& signals) {
    auto words = job_words(job);
    words.insert(words.begin(), "muster");
    auto variables = job_variables(job, result);
    const auto arguments = as_pointers(words);
    const auto environment = as_pointers(variables);
    const pid_t parent = ::getpid();
    ::signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would throw the exit status away
    const pid_t pid = ::fork();
    if (pid < 0) return error_from_shortage(errno, "start muster");
    if (pid == 0) {
        // Another thread may hold a lock, so only system calls.
        ::prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (::getppid() != parent) ::_exit(1);
        signals.release();
        ::dup2(STDERR_FILENO, STDOUT_FILENO);  // the findings alone go to stdout
        ::execve("/proc/self/exe", arguments.data(), environment.data());
        ::_exit(127);
    }
    struct sigaction ignore {};
    struct sigaction before {};
    ignore.sa_handler = SIG_IGN;
    const bool reports = job.interrupted == InterruptedTest::is_reported;
    if (reports) ::sigaction(SIGINT, &ignore, &before);
    auto end = wait_for_job(pid, job.limit, signals);
    if (reports) ::sigaction(SIGINT, &before, nullptr);
    return end;
}

/// The job of the order.
PairsJob pairs_job(const PairsOrder& order) {
    PairsJob job{.expected_count = order.node_count,
                 .options = {"--rdzv-id", order.job},
                 .directory = order.directory,
                 .without = {"MUSTER_HEALTH_CHECK"},
                 .limits = order.limits};
    // For nodes that come late. Of the user's own join_timeout nothing is known here.
    job.limit += order.node_count > 0 ? Duration(2 * order.wait_seconds * 1s) : join_timeout_default;
    if (std::ranges::any_of(order.muster_options, [](const auto& word) {
            return word.starts_with("--rdzv-conf") || word.starts_with("--rdzv_conf");
        }))
        job.limit = Duration::max();
    auto& words = job.options;
    if (!order.endpoint.empty()) words.insert(words.end(), {"--rdzv-endpoint", order.endpoint});
    // All that came by the last call start, so that one node that never comes does not hide the faults of the others.
    if (order.node_count > 1)
        words.insert(words.end(),
                     {"--rdzv-backend", "c10d", "--nnodes", cat("2:", order.node_count), "--rdzv-conf",
                      cat("last_call_timeout=", order.wait_seconds, ",join_timeout=", 2 * order.wait_seconds)});
    words.insert(words.end(), order.muster_options.begin(), order.muster_options.end());
    return job;
}

agent::Look without_result(std::string why) {
    return {.state = agent::Look::State::cut, .why = std::move(why), .records = {}};
}

}  // namespace

agent::Look run_pairs_job(const PairsJob& job) {
    const HeldSignals signals(job.interrupted);
    auto result = cat(job.directory, "/muster-pairs-XXXXXX");
    const FileDescriptor file(::mkostemp(result.data(), O_CLOEXEC));
    if (!file.valid()) return without_result(cat("cannot make ", result, ": ", errno_text(errno)));
    const auto end = run_job(job, result, signals);
    const auto text = read_start_of_file(result, result_bytes_max);
    ::unlink(result.c_str());
    if (!end) {
        auto look = agent::parse_look(text, "");  // the search itself may have ended
        look.state = agent::Look::State::cut;
        look.why = end.error().context;
        return look;
    }
    if (text.empty())
        return without_result(cat("the job of the test ",
                                  end->si_code == CLD_EXITED ? "ended with exit code " : "was ended by signal ",
                                  end->si_status));
    auto look = agent::parse_look(text, "");
    if (look.state == agent::Look::State::cut)
        look.why = text == "begun\n" ? "muster-pairs on this node did not answer before the job of the test ended"
                                     : "the result is not whole";
    return look;
}

std::vector<std::string> pairs_job_words(const PairsOrder& order) {
    return job_words(pairs_job(order));
}

bool has_meeting(const PairsOrder& pairs, const Environment& environment) {
    return !pairs.endpoint.empty() || !pairs.muster_options.empty() || is_slurm_task(environment) ||
           is_mpi_process(environment) || is_kubernetes_pod(environment) || environment.contains("MUSTER_NNODES") ||
           environment.contains("PET_NNODES");
}

agent::Look look_between_nodes(const PairsOrder& order) {
    if (order.node_count == 1)
        return without_result(
            "one node has no pair; write srun -N 2 or more, or --nnodes N --rdzv-endpoint HOST on every node");
    return run_pairs_job(pairs_job(order));
}

}  // namespace muster::launcher
