#include "launcher/host/node_pairs.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/process/side_process.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// A result of 2,048 nodes has half a MiB.
constexpr std::size_t result_bytes_max = std::size_t{4} << 20;

std::vector<std::string> job_words(const PairsOrder& order) {
    std::vector<std::string> words{
        "/proc/self/exe", "--nproc-per-node", "1", "--max-restarts", "0", "--preflight", "off", "--rdzv-id", order.job};
    if (!order.endpoint.empty())
        words.insert(words.end(), {"--rdzv-backend", "c10d", "--rdzv-endpoint", order.endpoint});
    // All that came by the last call start, so that one node that never comes does not hide the faults of the others.
    if (order.node_count > 1)
        words.insert(words.end(),
                     {"--nnodes", cat("2:", order.node_count), "--rdzv-conf",
                      cat("last_call_timeout=", order.wait_seconds, ",join_timeout=", 2 * order.wait_seconds)});
    words.insert(words.end(), order.muster_options.begin(), order.muster_options.end());
    words.insert(words.end(), {"--no-python", agent::side_program("muster-pairs"), cat(order.node_count)});
    return words;
}

/// The wait status, or why it did not start. Ctrl-C reaches both; the job ends first.
Result<int> run_job(std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    // The findings alone go to stdout.
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    pid_t pid = -1;
    const int failure = ::posix_spawn(&pid, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failure != 0) return error_from_errno(failure, "start muster");
    ::signal(SIGINT, SIG_IGN);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    ::signal(SIGINT, SIG_DFL);
    return status;
}

agent::Look without_result(std::string why) {
    return {.state = agent::Look::State::cut, .why = std::move(why), .records = {}};
}

}  // namespace

agent::Look look_between_nodes(const PairsOrder& order) {
    auto result = cat(order.directory, "/muster-pairs-XXXXXX");
    const FileDescriptor file(::mkostemp(result.data(), O_CLOEXEC));
    if (!file.valid()) return without_result(cat("cannot make ", result, ": ", std::strerror(errno)));
    // Not an argument: those of all nodes are compared.
    ::setenv("MUSTER_PAIRS_FILE", result.c_str(), 1);
    const auto status = run_job(job_words(order));
    const auto text = read_start_of_file(result, result_bytes_max);
    ::unlink(result.c_str());
    if (!status) return without_result(status.error().context);
    if (text.empty())
        return without_result(WIFEXITED(*status)
                                  ? cat("the job of the test ended with exit code ", WEXITSTATUS(*status))
                                  : cat("the job of the test was ended by signal ", WTERMSIG(*status)));
    auto look = agent::parse_look(text, "the job's end");
    if (look.state == agent::Look::State::cut) look.why = "the result is not whole";
    return look;
}

}  // namespace muster::launcher
