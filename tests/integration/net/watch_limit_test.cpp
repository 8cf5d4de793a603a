// The kernel refuses to watch one more descriptor (fs.epoll.max_user_watches, no memory): that costs one connection.
//
// The real limit is the user's and would hit everything else on this host, so this program has an epoll_ctl of its own
// that fails when it is told to.
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "rendezvous/servers/round_store.h"
#include "tests/integration/net/running_daemon.h"

namespace {

std::atomic<int> failing_operation{0};
std::atomic<int> failure{0};

}  // namespace

extern "C" int epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event* event) {
    int expected = operation;
    if (failing_operation.compare_exchange_strong(expected, 0)) {
        errno = failure;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_epoll_ctl, epoll_fd, operation, fd, event));
}

using namespace muster;
using namespace muster::rendezvous;

namespace {

void fail_next(int operation, int error_number) {
    failure = error_number;
    failing_operation = operation;
}

}  // namespace

TEST_CASE("a loop that cannot be watched itself names the limit") {
    fail_next(EPOLL_CTL_ADD, ENOSPC);
    EventLoop loop;
    REQUIRE_FALSE(loop.opened().has_value());
    CHECK(loop.opened().error().context.find("fs.epoll.max_user_watches") != std::string::npos);
    CHECK(loop.start_thread().error().code == Errc::limit_exceeded);
    DaemonConfig config;
    config.listen.ports = {0, 0};
    const auto daemon = Daemon::open(loop, config);
    REQUIRE(daemon.has_error());
    CHECK(daemon.error().context.find("fs.epoll.max_user_watches") != std::string::npos);
}

TEST_CASE("a connection that cannot be watched is closed, and the next one is served") {
    const RunningDaemon running;
    for (const int error_number : {ENOSPC, ENOMEM}) {
        fail_next(EPOLL_CTL_ADD, error_number);
        CHECK(running.connect().closed_by_peer());
        running.require_prompt_service();
    }
    CHECK(running.metric("muster_connections_refused_total") == 2);
}

TEST_CASE("a connection whose watch cannot be changed is closed, and the others are served") {
    const RunningDaemon running;
    const PlainSocket greedy("127.0.0.1", running.port(), 4096);
    const std::string value(1 << 20, 'v');
    std::string requests = c10d_bytes::validate + c10d_bytes::set("/k", value);
    for (int i = 0; i < 100; ++i) requests += c10d_bytes::get("/k");
    fail_next(EPOLL_CTL_MOD, ENOMEM);
    greedy.send(requests);
    CHECK(greedy.closed_by_peer());
    running.require_prompt_service();
    CHECK(running.metric("muster_connections_refused_total") == 1);
}

TEST_CASE("a port that cannot be watched is an error that says what to do") {
    EventLoop loop;
    fail_next(EPOLL_CTL_ADD, ENOSPC);
    DaemonConfig config;
    config.listen.ports = {0, 0};
    const auto daemon = Daemon::open(loop, config);
    REQUIRE(daemon.has_error());
    CHECK(daemon.error().context.find("fs.epoll.max_user_watches") != std::string::npos);
    fail_next(EPOLL_CTL_ADD, ENOSPC);
    CHECK(RoundStore::open(loop, {}).has_error());
    CHECK(RoundStore::open(loop, {}).has_value());
}
