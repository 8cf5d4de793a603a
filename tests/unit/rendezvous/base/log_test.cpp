// The log in a process of its own, whose stderr is a pipe that the test holds.
#include "rendezvous/base/log.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <regex>
#include <sstream>

#include "rendezvous/base/check.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/line_times.h"

using namespace muster;
using test::without_times;

namespace {

struct Pipe {
    Pipe() {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        out = FileDescriptor(ends[0]);
        in = FileDescriptor(ends[1]);
    }
    /// Until nobody can write to it any more.
    std::string rest() {
        in.reset();
        std::string all;
        char bytes[4096];
        for (ssize_t size = 0; (size = ::read(out.get(), bytes, sizeof bytes)) > 0;)
            all.append(bytes, static_cast<std::size_t>(size));
        return all;
    }
    FileDescriptor out;
    FileDescriptor in;
};

void fill(const Pipe& pipe) {
    ::fcntl(pipe.in.get(), F_SETFL, O_NONBLOCK);
    const std::string block(4096, '#');
    while (::write(pipe.in.get(), block.data(), block.size()) > 0) {
    }
    ::fcntl(pipe.in.get(), F_SETFL, 0);
}

/// Runs `work` in a child whose stderr is the pipe.
pid_t with_stderr(const Pipe& pipe, const std::function<void()>& work) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::dup2(pipe.in.get(), STDERR_FILENO);
    set_log_level(LogLevel::info);
    work();
    ::_exit(0);
}

}  // namespace

TEST_CASE("until a thread writes the log, each line is there at once") {
    Pipe stderr_pipe;
    const auto child = with_stderr(stderr_pipe, [] {
        log(LogLevel::debug, "below the level");
        log(LogLevel::info, "one ", 1);
        print_notice("a notice\n");
    });
    const auto text = stderr_pipe.rest();
    CHECK(without_times(text).ends_with(" info one 1\na notice\n"));
    CHECK(text.find("below") == std::string::npos);
    ::waitpid(child, nullptr, 0);
}

TEST_CASE("each line that no terminal shows begins with the time: of the log, of a notice, and what was skipped") {
    Pipe stderr_pipe;
    const auto child = with_stderr(stderr_pipe, [] {
        ::setenv("TZ", "XYZ-5:30", 1);
        set_log_name("muster[gpu07]");
        log(LogLevel::warning, "a line");
        print_notice("");
        print_notice("muster: job bert failed\n  first failure: rank 5\n");
    });
    const auto text = stderr_pipe.rest();
    ::waitpid(child, nullptr, 0);
    CHECK(without_times(text) == "muster[gpu07] warning a line\nmuster: job bert failed\n  first failure: rank 5\n");
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) CHECK(line.substr(23, 7) == "+05:30 ");
    CHECK(line_time(stderr_pipe.out.get()).size() == 30);
}

TEST_CASE("what a bug prints begins with the time, too") {
    for (const bool is_result : {false, true}) {
        Pipe stderr_pipe;
        const auto child = with_stderr(stderr_pipe, [is_result] {
            ::signal(SIGABRT, SIG_DFL);  // Catch's handler reports for its own process.
            if (is_result) (void)Result<int>(Error{Errc::timed_out, "no answer"}).value();
            MUSTER_CHECK(is_result, 7);
        });
        const auto text = stderr_pipe.rest();
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
        INFO(text);
        const auto* const what = is_result ? R"(\(the result has a value\) does not hold \[timed_out: no answer\])"
                                           : R"(\(is_result\) does not hold \[7\])";
        CHECK(std::regex_match(text,
                               std::regex(cat(test::line_time_pattern, R"(muster: bug at \S+:\d+: )", what, "\n"))));
    }
}

TEST_CASE("a terminal shows notices without the time, and so does the journal, which has its own") {
    const FileDescriptor terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    REQUIRE(terminal.valid());
    CHECK(line_time(terminal.get()).empty());
    Pipe stream;
    struct stat facts {};
    REQUIRE(::fstat(stream.in.get(), &facts) == 0);
    ::setenv("JOURNAL_STREAM", cat(facts.st_dev, ':', facts.st_ino).c_str(), 1);
    CHECK(line_time(stream.in.get()).empty());
    CHECK(line_time(terminal.get()).empty());
    ::unsetenv("JOURNAL_STREAM");
    CHECK_FALSE(line_time(stream.in.get()).empty());
}

TEST_CASE("nothing of a worker's or a peer's words drives the terminal") {
    Pipe stderr_pipe;
    const auto child = with_stderr(stderr_pipe, [] {
        log(LogLevel::info, "a peer said \033[2J\x9b and \xff");
        print_notice("muster: h\xc3\xa4lt \033]0;title\007 an\r\n");
    });
    const auto text = without_times(stderr_pipe.rest());
    ::waitpid(child, nullptr, 0);
    CHECK(
        text.ends_with(" info a peer said \\x1b[2J\\x9b and \\xff\n"
                       "muster: h\xc3\xa4lt \\x1b]0;title\\x07 an\\x0d\n"));
}

TEST_CASE("a thread keeps the order, and flush_log waits for the last line") {
    Pipe stderr_pipe;
    const auto child = with_stderr(stderr_pipe, [] {
        write_log_on_thread();
        for (int i = 0; i < 1000; ++i) log(LogLevel::info, "line ", i);
        print_notice("the end\n");
        if (!flush_log(60s)) ::_exit(1);
    });
    const auto text = stderr_pipe.rest();
    CHECK(without_times(text).ends_with("info line 999\nthe end\n"));
    CHECK(static_cast<int>(std::count(text.begin(), text.end(), '\n')) == 1001);
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
}

TEST_CASE("a stderr that nobody reads holds nobody up, and what was left out is counted") {
    Pipe stderr_pipe, done;
    fill(stderr_pipe);
    const auto child = with_stderr(stderr_pipe, [&] {
        write_log_on_thread();
        for (int i = 0; i < 100'000; ++i) log(LogLevel::info, "a line that is of no great length, number ", i);
        const bool all_written = flush_log(10ms);
        if (::write(done.in.get(), all_written ? "?" : "x", 1) != 1) ::_exit(1);
        flush_log(60s);  // the test reads by now
    });
    char byte = 0;
    REQUIRE(::read(done.out.get(), &byte, 1) == 1);  // without the thread nobody would ever come so far
    CHECK(byte == 'x');
    const auto text = stderr_pipe.rest();
    CHECK(text.find("... ") != std::string::npos);
    CHECK(text.find(" lines skipped\n") != std::string::npos);
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
}

TEST_CASE("where no thread can be had the last words are written all the same") {
    Pipe stderr_pipe;
    const auto child = with_stderr(stderr_pipe, [] {
        if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);  // root has no limit of processes
        const rlimit none{.rlim_cur = 0, .rlim_max = 0};
        ::setrlimit(RLIMIT_NPROC, &none);
        write_log_on_thread();
        print_notice("cannot go on\n");
        if (!flush_log(60s)) ::_exit(3);
    });
    CHECK(without_times(stderr_pipe.rest()) == "cannot go on\n");
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
}

TEST_CASE("a line of the log stays one line, whatever peers have written into it") {
    Pipe pipe;
    const auto child = with_stderr(pipe, [] { log(LogLevel::info, "job 'a\nmuster error forged'"); });
    const auto lines = pipe.rest();
    ::waitpid(child, nullptr, 0);
    CHECK(std::count(lines.begin(), lines.end(), '\n') == 1);
    CHECK(lines.find("a\\x0amuster error forged") != std::string::npos);
}
