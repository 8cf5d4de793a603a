#include "agent/channel/timer_fifo.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

/// A process that waits to be killed, a group of its own as workers are.
pid_t start_sleeper() {
    const auto pid = test::fork_with_test();
    if (pid == 0) {
        ::setpgid(0, 0);
        for (;;) ::pause();
    }
    ::setpgid(pid, pid);
    return pid;
}

void write_request(const std::string& path, pid_t pid, double in_s, int signal = SIGKILL) {
    const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    std::ofstream(path) << "{\"version\": 1, \"pid\": " << pid
                        << ", \"scope_id\": \"step\", \"expiration_time\": " << std::fixed << now + in_s
                        << ", \"signal\": " << signal << "}\n";
}

}  // namespace

TEST_CASE("a worker whose timer runs out gets its signal, and one that is no worker does not") {
    const test::ScratchFolder folder;
    boost::asio::io_context loop;
    std::map<std::string, std::string> environment{{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}};
    std::string path;
    const auto worker = start_sleeper();
    const auto stranger = start_sleeper();
    {
        TimerFifo fifo(loop);
        REQUIRE(fifo.open(environment, folder.string()).has_value());
        path = environment["TORCHELASTIC_TIMER_FILE"];
        CHECK(path.starts_with(folder.string()));
        // No other user can take the name before, or move it: the directory is this agent's.
        const auto directory = std::filesystem::path(path).parent_path();
        CHECK(directory != std::filesystem::path(folder.string()));
        CHECK(std::filesystem::status(directory).permissions() == std::filesystem::perms::owner_all);
        CHECK(std::filesystem::status(path).permissions() ==
              (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
        fifo.worker_started(0, worker);
        write_request(path, stranger, 0.02);
        write_request(path, worker, 0.05);
        int status = 0;
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (::waitpid(worker, &status, WNOHANG) == 0 && std::chrono::steady_clock::now() < deadline)
            loop.run_one_for(20ms);
        CHECK(WTERMSIG(status) == SIGKILL);
        const auto cause = fifo.worker_ended(worker, Signaled{SIGKILL, false});
        CHECK(cause.kind == CauseKind::timer_expired);
        CHECK(cause.text.find("its timer 'step' has expired") == 0);
        CHECK(fifo.worker_ended(worker, Signaled{SIGKILL, false}).kind == CauseKind::unknown);
        CHECK(::waitpid(stranger, &status, WNOHANG) == 0);
    }
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK(std::filesystem::is_empty(folder.string()));
    ::kill(stranger, SIGKILL);
    ::waitpid(stranger, nullptr, 0);
}

TEST_CASE("a worker that lived on after its timer's signal has another reason for its end") {
    const test::ScratchFolder folder;
    boost::asio::io_context loop;
    std::map<std::string, std::string> environment{{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}};
    TimerFifo fifo(loop);
    REQUIRE(fifo.open(environment, folder.string()).has_value());
    const std::vector<std::pair<WorkerEnd, CauseKind>> ends{{Exited{1}, CauseKind::unknown},
                                                            {Signaled{SIGSEGV, true}, CauseKind::unknown},
                                                            {Signaled{SIGUSR1, false}, CauseKind::timer_expired},
                                                            {Exited{128 + SIGUSR1}, CauseKind::timer_expired}};
    for (const auto& [end, kind] : ends) {
        const auto worker = start_sleeper();  // SIGUSR1 ends it, whatever is told of it then
        fifo.worker_started(0, worker);
        write_request(environment["TORCHELASTIC_TIMER_FILE"], worker, 0.01, SIGUSR1);
        int status = 0;
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (::waitpid(worker, &status, WNOHANG) == 0 && std::chrono::steady_clock::now() < deadline)
            loop.run_one_for(20ms);
        CHECK(WTERMSIG(status) == SIGUSR1);
        CHECK(fifo.worker_ended(worker, end).kind == kind);
    }
}

TEST_CASE("a timer that was set just before its worker's end is void, also for the next worker of that pid") {
    const test::ScratchFolder folder;
    boost::asio::io_context loop;
    std::map<std::string, std::string> environment{{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}};
    TimerFifo fifo(loop);
    REQUIRE(fifo.open(environment, folder.string()).has_value());
    const auto path = environment["TORCHELASTIC_TIMER_FILE"];
    const auto reused = start_sleeper();
    const auto other = start_sleeper();
    fifo.worker_started(0, reused);
    fifo.worker_started(1, other);
    write_request(path, reused, 0.01);
    write_request(path, other, 0.05);
    // The loop has not read either of them yet.
    CHECK(fifo.worker_ended(reused, Exited{0}).kind == CauseKind::unknown);
    fifo.worker_started(0, reused);
    int status = 0;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (::waitpid(other, &status, WNOHANG) == 0 && std::chrono::steady_clock::now() < deadline)
        loop.run_one_for(20ms);
    CHECK(WTERMSIG(status) == SIGKILL);
    CHECK(::waitpid(reused, &status, WNOHANG) == 0);
    ::kill(reused, SIGKILL);
    ::waitpid(reused, nullptr, 0);
}

TEST_CASE("without the variable there is no FIFO, an old one is replaced, and a file is left alone") {
    const test::ScratchFolder folder;
    boost::asio::io_context loop;
    std::map<std::string, std::string> none;
    CHECK(TimerFifo(loop).open(none, folder.string()).has_value());
    CHECK(none.empty());
    const auto path = cat(folder.string(), "/timers");
    std::map<std::string, std::string> environment{{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"},
                                                   {"TORCHELASTIC_TIMER_FILE", path}};
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    {
        TimerFifo fifo(loop);
        CHECK(fifo.open(environment, folder.string()).has_value());
        CHECK(std::filesystem::is_fifo(path));
    }
    std::ofstream(path) << "mine";
    const auto refused = TimerFifo(loop).open(environment, folder.string());
    REQUIRE(refused.has_error());
    CHECK(refused.error().context.find("exists and is not a FIFO") != std::string::npos);
    CHECK(std::filesystem::file_size(path) == 4);
}
