// What systemd says to a daemon, and what the daemon's loop says back.
#include "rendezvous/servers/service.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <thread>

#include "rendezvous/net/listener.h"
#include "tests/support/catch.h"
#include "tests/support/datagram_socket.h"
#include "tests/support/end_with_test.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

using Variables = std::map<std::string, std::string>;

Result<ServiceEnvironment> environment_of(const Variables& variables) {
    return service_environment(
        [&](const char* name) -> const char* {
            const auto found = variables.find(name);
            return found == variables.end() ? nullptr : found->second.c_str();
        },
        7);
}

bool is_pending(int number) {
    sigset_t pending;
    ::sigpending(&pending);
    return ::sigismember(&pending, number) == 1;
}

}  // namespace

TEST_CASE("sockets and watchdog that are meant for another process count as none") {
    const Variables given{{"NOTIFY_SOCKET", "/run/n"}, {"WATCHDOG_USEC", "500000"}, {"WATCHDOG_PID", "7"},
                          {"LISTEN_FDS", "3"},         {"LISTEN_PID", "7"},         {"LISTEN_FDNAMES", "a:b"},
                          {"STATE_DIRECTORY", "/var"}};
    const auto ours = environment_of(given).value();
    CHECK(ours.notify_socket == "/run/n");
    CHECK(ours.watchdog == 500ms);
    CHECK(ours.listens == std::vector<std::string>{"a", "b", "unknown"});
    CHECK(ours.state_directory == "/var");
    auto other = given;
    other["WATCHDOG_PID"] = other["LISTEN_PID"] = "8";
    CHECK(environment_of(other).value().watchdog == 0ns);
    CHECK(environment_of(other).value().listens.empty());
    CHECK(environment_of({}).value().listens.empty());
}

TEST_CASE("numbers that are none are named") {
    CHECK(environment_of({{"WATCHDOG_USEC", "soon"}}).error().context.starts_with("WATCHDOG_USEC: got 'soon'"));
    for (const char* count : {"-1", "65", "x"})
        CHECK(environment_of({{"LISTEN_PID", "7"}, {"LISTEN_FDS", count}}).error().context.starts_with("LISTEN_FDS"));
}

TEST_CASE("only a loop that turns is ready, feeds the watchdog and has a status") {
    test::DatagramSocket manager;
    EventLoop loop;
    {
        const ServiceReport report(
            loop, {.notify_socket = manager.path(), .watchdog = 50ms, .listens = {}, .state_directory = {}},
            [] { return std::string("serving"); });
        CHECK(manager.hear(MSG_DONTWAIT).empty());
        std::thread turning([&loop] { loop.run(); });
        CHECK(manager.hear() == "READY=1\nWATCHDOG=1\nSTATUS=serving\n");
        CHECK(manager.hear() == "WATCHDOG=1\n");
        loop.stop();
        turning.join();
        // What is in the queue was said while the loop turned; nothing follows.
        while (!manager.hear(MSG_DONTWAIT).empty()) {
        }
        const auto quiet_until = std::chrono::steady_clock::now() + 120ms;
        while (std::chrono::steady_clock::now() < quiet_until) CHECK(manager.hear(MSG_DONTWAIT).empty());
    }
    CHECK(manager.hear() == "STOPPING=1");
}

TEST_CASE("what a full queue of the manager refuses is said again after a second, the watchdog's feed too") {
    test::DatagramSocket manager;
    EventLoop loop;
    ServiceReport report(loop, {.notify_socket = manager.path(), .watchdog = 60s, .listens = {}, .state_directory = {}},
                         [] { return std::string("serving"); });
    const auto now = std::chrono::steady_clock::now();
    while (notify_service_manager(manager.path(), "X=1", Duration::zero())) {
    }
    CHECK(report.turn(now) == now + 1s);
    while (!manager.hear(MSG_DONTWAIT).empty()) {
    }
    CHECK(report.turn(now + 1s) == now + 31s);
    CHECK(manager.hear() == "READY=1\nWATCHDOG=1\nSTATUS=serving\n");
}

TEST_CASE("a second signal ends a daemon whose end hangs, and one that comes with the first does not") {
    const auto end_of_daemon = [](Duration one_request) {
        const pid_t child = test::fork_with_test();
        if (child == 0) {
            ::alarm(60);
            EventLoop loop;
            const StopOnSignal signals(loop);
            ::kill(::getpid(), SIGTERM);
            loop.run();
            StopOnSignal::end_at_next(one_request);
            // The second one is taken only where the first one has not ended the process.
            for (int i = 0; i < 2; ++i) {
                ::kill(::getpid(), SIGTERM);
                while (is_pending(SIGTERM)) ::sched_yield();
            }
            while (one_request == 0s) ::pause();
            ::_exit(0);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        return status;
    };
    const int ended = end_of_daemon(0s);
    CHECK(WIFSIGNALED(ended));
    CHECK(WTERMSIG(ended) == SIGTERM);
    CHECK(end_of_daemon(1h) == 0);
}

TEST_CASE("a listening socket is taken over with its queue, anything else is refused and stays open") {
    int pair[2];
    REQUIRE(::pipe(pair) == 0);
    CHECK(Listener::adopt(pair[0]).error().code == Errc::invalid_argument);
    const int idle = ::socket(AF_INET, SOCK_STREAM, 0);
    const int unix_stream = ::socket(AF_UNIX, SOCK_STREAM, 0);
    for (const int fd : {idle, unix_stream}) CHECK(Listener::adopt(fd).error().code == Errc::invalid_argument);
    for (const int fd : {pair[0], pair[1], idle, unix_stream}) CHECK(::close(fd) == 0);
    const auto held = Listener::open({.address = "127.0.0.1", .ports = {}}).value();
    const auto adopted = Listener::adopt(::dup(held->fd())).value();
    CHECK(adopted->port() == held->port());
    CHECK(adopted->address() == "127.0.0.1");
}
