// The program musterd: what its options change, and how it ends.
#include <fcntl.h>
#include <poll.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <csignal>

#include "agent/process/signal_handlers.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/text/utc.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/integration/net/plain_socket.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"
#include "tests/support/line_times.h"
#include "tests/support/other_user.h"
#include "tests/support/scratch_folder.h"

using namespace muster;

namespace {

class Musterd {
  public:
    explicit Musterd(std::vector<std::string> options, rlim_t open_files = 0) {
        std::array<int, 2> ends{};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
        output_ = ends[0];
        // Beyond loopback it would ask for a key.
        std::vector<char*> words{const_cast<char*>("musterd"), const_cast<char*>("--bind"),
                                 const_cast<char*>("127.0.0.1")};
        for (auto& option : options) words.push_back(option.data());
        words.push_back(nullptr);
        pid_ = ::vfork();  // returns when the handlers are musterd's own, which a signal has to find
        if (pid_ == 0) {
            test::end_with_test();
            test::reset_signals();
            ::dup2(ends[1], 1);
            ::dup2(ends[1], 2);
            const rlimit files{open_files, open_files};
            if (open_files != 0) ::setrlimit(RLIMIT_NOFILE, &files);
            ::execv(MUSTERD, words.data());
            ::_exit(127);
        }
        REQUIRE(pid_ > 0);
        ::close(ends[1]);
    }
    ~Musterd() {
        if (pid_ > 0) end(SIGKILL);
        ::close(output_);
    }
    Musterd(const Musterd&) = delete;

    /// What it prints, up to `last` or its end.
    std::string read_until(std::string_view last) {
        std::string text;
        pollfd waiting{.fd = output_, .events = POLLIN, .revents = 0};
        std::array<char, 4096> piece;
        while (text.find(last) == std::string::npos && ::poll(&waiting, 1, 20'000) == 1) {
            const auto size = ::read(output_, piece.data(), piece.size());
            if (size <= 0) break;
            text.append(piece.data(), static_cast<std::size_t>(size));
        }
        return text;
    }
    std::uint16_t port() {
        const std::string line = read_until("\n");
        std::uint16_t number = 0;
        REQUIRE(parse_number(std::string_view(line).substr(line.rfind(':') + 1, line.find('\n') - line.rfind(':') - 1),
                             number));
        return number;
    }
    /// The exit code after `signal` (0: it ends by itself).
    int end(int signal = 0) {
        if (signal != 0) ::kill(pid_, signal);
        int status = 0;
        ::waitpid(std::exchange(pid_, 0), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    [[nodiscard]] pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = 0;
    int output_ = -1;
};

/// What a fresh agent of a job for one node hears first.
std::string first_answer(const PlainSocket& socket) {
    native::Hello hello;
    hello.job = "job";
    hello.node = {.host = "here", .pid = 1, .incarnation = 9};
    native::Join join;
    join.addresses = {"127.0.0.1"};
    join.store_port = 1;
    join.terms.lease_ms = 50'000;  // a daemon is quiet for one after its start; this process may stand still meanwhile
    std::string bytes;
    native::append_frame(bytes, hello);
    native::append_frame(bytes, join);
    REQUIRE(socket.send(bytes));
    native::FrameReader reader(native::Sender::daemon);
    for (;;) {
        auto message = reader.next();
        REQUIRE(message.has_value());
        if (*message) return std::string(native::name(**message));
        const std::string byte = socket.receive(1);
        REQUIRE(byte.size() == 1);
        reader.append(byte);
    }
}

}  // namespace

TEST_CASE("musterd is quiet after its start, unless it is told that no job of its can be running") {
    Musterd quiet({"--port", "0"});
    CHECK(first_answer(PlainSocket("127.0.0.1", quiet.port())) == "Gathering");
    Musterd prompt({"--port", "0", "--first-start"});
    CHECK(first_answer(PlainSocket("127.0.0.1", prompt.port())) == "Assigned");
}

TEST_CASE("musterd serves no other user of its host, in any dialect, unless it is told to or has a secret") {
    if (!test::may_be_another_user()) return;
    const auto of_another_user = [](std::uint16_t port) {
        ::setfsuid(65'534);  // the user of the sockets that this thread creates
        PlainSocket socket("127.0.0.1", port);
        ::setfsuid(0);
        REQUIRE(socket.connected());
        return socket;
    };
    constexpr std::string_view question = "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const std::string store_validate("\x00\x49\x51\x3c\x00", 5);  // of PyTorch's client; one that is served may go on
    {
        Musterd own({"--port", "0", "--first-start"});
        const auto port = own.port();
        CHECK(first_answer(of_another_user(port)) == "Refused");
        const auto page = of_another_user(port);
        REQUIRE(page.send(question));
        CHECK(page.receive(1'000).starts_with("HTTP/1.1 403"));
        const auto store = of_another_user(port);
        REQUIRE(store.send(store_validate));
        CHECK(store.receive(1).empty());
        CHECK(first_answer(PlainSocket("127.0.0.1", port)) == "Assigned");
    }
    Musterd all({"--port", "0", "--first-start", "--local-users", "all"});
    CHECK(first_answer(of_another_user(all.port())) == "Assigned");
}

TEST_CASE("musterd ends in order when it is told to, and says so") {
    Musterd daemon({"--port", "0"});
    daemon.port();
    CHECK(daemon.end(SIGTERM) == 0);
    CHECK(daemon.read_until("stopped by SIGTERM").find("stopped by SIGTERM") != std::string::npos);
}

TEST_CASE("a signal to a musterd that still reads its options ends it with a sentence") {
    const test::ScratchFolder scratch;
    const auto never_written = scratch / "musterd.conf";
    REQUIRE(::mkfifo(never_written.c_str(), 0600) == 0);
    Musterd daemon({"--config", never_written});
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (!agent::handles_signal(daemon.pid(), SIGTERM) && std::chrono::steady_clock::now() < until) {
    }
    const auto utc = [] {
        return utc_text(
            std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()),
            "%Y-%m-%dT%H:%M:%S");
    };
    const auto before = utc();
    CHECK(daemon.end(SIGTERM) == 143);
    const auto line = daemon.read_until("\n");
    CHECK(test::without_times(line) ==
          "musterd: SIGTERM during start-up; no job was served. To serve jobs, start musterd again.\n");
    INFO(line);
    CHECK((before <= line.substr(0, before.size()) && line.substr(0, before.size()) <= utc()));
    CHECK(line.substr(before.size() + 4).starts_with("+00:00 "));
}

TEST_CASE("an option that musterd does not understand is named, and ends it with 2; a port in use with 78") {
    for (const char* wrong :
         {"--prot", "--port=x", "--state=paper", "--log-level=loud", "--allow-from=10.0.0/8", "stray"}) {
        Musterd daemon({wrong});
        const std::string said = daemon.read_until("\n");
        CHECK(said.find(std::string(wrong).substr(0, std::string(wrong).find('='))) != std::string::npos);
        CHECK(daemon.end() == 2);
    }
    Musterd mistyped({"--sate=memory"});
    CHECK(mistyped.read_until("\n").find("the nearest known option is --state") != std::string::npos);
    CHECK(mistyped.end() == 2);
    Musterd first({"--port", "0"});
    const auto port = std::to_string(first.port());
    Musterd second({"--port", port});
    CHECK(second.read_until("\n").find(port) != std::string::npos);
    CHECK(second.end() == 78);
}

TEST_CASE("with fewer descriptors than it needs for itself it says how many, and ends with 78") {
    for (const char* way : {"--port=0", "--check"}) {
        for (const rlim_t files : {20, 63}) {
            Musterd daemon({way}, files);
            CHECK(daemon.read_until("listening").find(cat("the limit of open files is ", files)) != std::string::npos);
            CHECK(daemon.end(SIGKILL) == 78);
        }
    }
    Musterd least({"--port", "0", "--first-start"}, 64);
    CHECK(first_answer(PlainSocket("127.0.0.1", least.port())) == "Assigned");
}

TEST_CASE("a musterd with state in a file refuses one that another has open, and names it") {
    const test::ScratchFolder scratch;
    const auto state = "sqlite:" + (scratch / "state.db");
    Musterd first({"--port", "0", "--state", state, "--log-level", "error"});
    first.port();
    Musterd second({"--port", "0", "--state", state, "--log-level", "error"});
    const auto said = second.read_until("\n");
    CHECK(said.find(cat("in use by another daemon (pid ", first.pid(), ")")) != std::string::npos);
    CHECK(second.end() == 78);
    CHECK(first.end(SIGKILL) == 128 + SIGKILL);
    Musterd next({"--port", "0", "--state", state, "--log-level", "error"});
    next.port();
    CHECK(next.end(SIGTERM) == 0);
}
