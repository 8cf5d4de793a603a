#include "launcher/commands/job_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>

#include "agent/channel/local_listener.h"
#include "agent/commands/command_address.h"
#include "launcher/commands/commands.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"
#include "tests/support/other_user.h"

using namespace muster;

namespace {

constexpr uid_t nobody = 65534;

native::Command drain() {
    return {.number = 1, .verb = native::CommandVerb::drain_node, .node = "n", .why = "", .fault = {}};
}

/// Listens under this name, whoever calls.
Result<FileDescriptor> listen_as(std::uint32_t named_user, const std::string& job) {
    auto socket = agent::listen_locally(
        agent::write_command_address({named_user, ::getpid(), agent::fresh_token(), job}), "commands");
    if (socket) ::fcntl(socket->get(), F_SETFL, ::fcntl(socket->get(), F_GETFL) & ~O_NONBLOCK);
    return socket;
}

/// Answers the first command whose giver waits for it with "done: TEXT". Other connections are closed. Returns false if
/// the listener is shut down first.
bool answer_one(const FileDescriptor& listener, const std::string& text) {
    for (;;) {
        const FileDescriptor caller(::accept(listener.get(), nullptr, nullptr));
        if (!caller.valid()) return false;
        char bytes[1024];
        if (::recv(caller.get(), bytes, sizeof bytes, 0) <= 0) continue;
        std::string frame;
        native::append_frame(frame, native::CommandAnswer{1, true, text});
        if (::send(caller.get(), frame.data(), frame.size(), MSG_NOSIGNAL) > 0) return true;
    }
}

/// A process of another user that listens under that name, and answers.
class Squatter {
  public:
    Squatter(std::uint32_t named_user, const std::string& job) {
        int ready[2];
        REQUIRE(::pipe(ready) == 0);
        child_ = test::fork_with_test();
        if (child_ == 0) {
            if (::setresuid(nobody, nobody, nobody) != 0) ::_exit(1);
            test::end_with_test();
            const auto listener = listen_as(named_user, job);
            if (!listener.has_value() || ::write(ready[1], "r", 1) != 1) ::_exit(1);
            ::_exit(answer_one(*listener, "squatter") ? 0 : 1);
        }
        ::close(ready[1]);
        char byte = 0;
        const auto got = ::read(ready[0], &byte, 1);
        ::close(ready[0]);
        REQUIRE(got == 1);
    }
    ~Squatter() {
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
    }
    Squatter(const Squatter&) = delete;
    Squatter& operator=(const Squatter&) = delete;

  private:
    pid_t child_ = -1;
};

struct Given {
    int code = -1;
    std::string out;  ///< what stdout got
};

Given give(const std::string& job) {
    std::fflush(stdout);
    const int own = ::dup(STDOUT_FILENO);
    std::FILE* kept = std::tmpfile();
    ::dup2(::fileno(kept), STDOUT_FILENO);
    Given given{launcher::give_command("drain", {.job = job, .endpoint = {}}, drain(), {}), {}};
    std::fflush(stdout);
    ::dup2(own, STDOUT_FILENO);
    ::close(own);
    std::rewind(kept);
    for (int c = std::fgetc(kept); c != EOF; c = std::fgetc(kept)) given.out += static_cast<char>(c);
    std::fclose(kept);
    return given;
}

/// An agent of this user that answers one command. Its destructor ends it.
class FakeAgent {
  public:
    FakeAgent(const std::string& job, const std::string& text) {
        auto listener = listen_as(::geteuid(), job);
        REQUIRE(listener.has_value());
        listener_ = std::move(*listener);
        thread_ = std::thread([this, text] { asked_ = answer_one(listener_, text); });
    }
    ~FakeAgent() { end(); }
    FakeAgent(const FakeAgent&) = delete;
    FakeAgent& operator=(const FakeAgent&) = delete;
    bool was_asked() {
        end();
        return asked_;
    }

  private:
    void end() {
        ::shutdown(listener_.get(), SHUT_RDWR);
        if (thread_.joinable()) thread_.join();
    }
    FileDescriptor listener_;
    std::thread thread_;
    bool asked_ = false;
};

}  // namespace

TEST_CASE("a node without a name, as of a variable that is not set, is missing: no agent is looked for") {
    CHECK(launcher::run_drain({""}, {}) == launcher::exit_codes::usage);
}

TEST_CASE("an agent's answer reaches the terminal without control characters") {
    const auto job = cat("job-command-text-", ::getpid());
    FakeAgent agent(job, "drained \x1b]0;owned\x07");
    const auto given = give(job);
    CHECK(given.code == 0);
    CHECK(given.out == "drained \\x1b]0;owned\\x07\n");
}

TEST_CASE("a socket of another user that bears an agent's name is not asked and answers nothing") {
    if (!test::may_be_another_user()) return;
    const auto job = cat("job-command-squatter-", ::getpid());
    const Squatter squatter(::geteuid(), job);
    const auto alone = give(job);
    CHECK(alone.code == 1);
    CHECK(alone.out.empty());
    FakeAgent agent(job, "drained");
    const auto given = give(job);
    CHECK(given.code == 0);
    CHECK(given.out == "drained\n");
}

TEST_CASE("root's command reaches the own agent also where another user has a job of that name, which answers first") {
    if (!test::may_be_another_user()) return;
    const auto job = cat("job-command-namesake-", ::getpid());
    const Squatter namesake(nobody, job);
    FakeAgent agent(job, "drained");
    const auto given = give(job);
    CHECK(given.code == 0);
    CHECK(given.out == "user 0: drained\nuser 65534: squatter\n");
    CHECK(agent.was_asked());
}

TEST_CASE("many sockets that accept nothing cost a command as little time as one, and an agent behind them answers") {
    const auto job = cat("job-command-test-", ::getpid());
    std::vector<FileDescriptor> full, waiting;
    for (int i = 0; i < 20; ++i) {
        const auto address = agent::write_command_address(
            {.user = ::geteuid(), .pid = ::getpid(), .token = agent::fresh_token(), .job = job});
        auto one = agent::listen_locally(address, "commands");
        REQUIRE(one.has_value());
        REQUIRE(::listen(one->get(), 0) == 0);  // the shortest queue
        full.push_back(std::move(*one));
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        address.copy(name.sun_path + 1, sizeof name.sun_path - 2);
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
        for (int number = 0; number == 0;) {
            waiting.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            const bool queued = ::connect(waiting.back().get(), reinterpret_cast<const sockaddr*>(&name), size) == 0;
            number = queued ? 0 : errno;
            REQUIRE((number == 0 || number == EAGAIN));
        }
    }
    const auto began = std::chrono::steady_clock::now();
    CHECK(give(job).code == 1);
    CHECK(std::chrono::steady_clock::now() - began < 20s);  // not 2 s for each
    // One of them goes on while the command waits. (Who has hung up stays in a queue until it is accepted.)
    waiting.clear();
    std::thread late([&] {
        ::poll(nullptr, 0, 300);
        ::fcntl(full[3].get(), F_SETFL, ::fcntl(full[3].get(), F_GETFL) & ~O_NONBLOCK);
        answer_one(full[3], "late");
    });
    auto given = give(job);
    // On a busy host the one may go on too late for a command; it answers the next one.
    for (int i = 0; i < 5 && given.code != 0; ++i) given = give(job);
    ::shutdown(full[3].get(), SHUT_RDWR);
    late.join();
    CHECK(given.code == 0);
    CHECK(given.out == "late\n");
}

TEST_CASE("a command reaches the agent of a user namespace of the own user, which calls itself by another number") {
    if (!test::may_be_another_user()) return;
    const auto job = cat("job-command-space-", ::getpid());
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const auto child = test::fork_with_test();
    if (child == 0) {
        // As unshare -Ur does; the user outside is 2001.
        const auto write_to = [](const char* path, const std::string& text) {
            const FileDescriptor file(::open(path, O_WRONLY | O_CLOEXEC));
            return ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
        };
        if (::setresuid(2001, 2001, 2001) != 0 || ::prctl(PR_SET_DUMPABLE, 1) != 0 || ::unshare(CLONE_NEWUSER) != 0 ||
            !write_to("/proc/self/uid_map", "0 2001 1") || ::write(ready[1], "r", 1) != 1)
            ::_exit(77);
        test::end_with_test();
        const auto listener = listen_as(::geteuid(), job);
        ::_exit(listener.has_value() && ::write(ready[1], "l", 1) == 1 && answer_one(*listener, "inside") ? 0 : 1);
    }
    ::close(ready[1]);
    char bytes[2]{};
    const bool made = ::read(ready[0], bytes, 1) == 1;
    const bool listens = made && ::read(ready[0], bytes + 1, 1) == 1;
    ::close(ready[0]);
    if (made) {
        CHECK(listens);
        const auto given = give(job);
        CHECK(given.code == 0);
        CHECK(given.out == "inside\n");
    } else {
        WARN("skipped: this host permits no user namespaces");
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}
