// A launcher that is a systemd unit's main process, and one that is not.
#include "launcher/node/service_unit.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

#include "rendezvous/base/file_descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/other_user.h"

using namespace muster;
using namespace muster::launcher;

namespace {

Environment of_a_unit(const std::string& pid) {
    return {{"SYSTEMD_EXEC_PID", pid}, {"NOTIFY_SOCKET", "/run/n"}, {"INVOCATION_ID", "1"}, {"PATH", "/bin"}};
}

ServiceUnit unit() {
    auto environment = of_a_unit("7");
    return ServiceUnit::take(environment, 7, 1);
}

/// Binds the name of that job's claim, and listens there if `backlog` is not negative.
FileDescriptor hold(const std::string& job, int backlog) {
    const auto text = "muster-unit/" + std::to_string(::geteuid()) + "/" + job;
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    text.copy(name.sun_path + 1, sizeof name.sun_path - 1);
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) return {};
    // SO_PEERCRED is the user at listen().
    if (backlog >= 0 && ::listen(socket.get(), backlog) != 0) return {};
    return socket;
}

}  // namespace

TEST_CASE("a name that another user holds, or nobody listens at, keeps no unit from its job") {
    const auto job = "service-unit-squat-" + std::to_string(::getpid());
    {
        const auto silent = hold(job, -1);
        REQUIRE(silent.valid());
        CHECK(unit().claim(job).has_value());
    }
    if (!test::may_be_another_user()) return;
    const auto held = hold(job, -1);
    REQUIRE(held.valid());
    const auto child = ::fork();
    if (child == 0) ::_exit(::setresuid(65534, 65534, 65534) == 0 && ::listen(held.get(), 8) == 0 ? 0 : 1);
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    CHECK(unit().claim(job).has_value());
}

TEST_CASE("what systemd says to its own process does not reach the workers") {
    auto environment = of_a_unit("7");
    (void)ServiceUnit::take(environment, 7, 1);
    CHECK(environment == Environment{{"INVOCATION_ID", "1"}, {"PATH", "/bin"}});
    // Below a service's own program, which may be another launcher's worker, nothing is ours.
    auto below = of_a_unit("8");
    (void)ServiceUnit::take(below, 7, 1);
    CHECK(below == of_a_unit("8"));
}

TEST_CASE("a systemd before 248 does not say which process it started: then its child is the one") {
    for (const int parent : {1, 42}) {
        Environment environment{{"NOTIFY_SOCKET", "/run/n"}, {"INVOCATION_ID", "1"}};
        (void)ServiceUnit::take(environment, 7, parent);
        CHECK(environment.contains("NOTIFY_SOCKET") == (parent != 1));
    }
    // In a container process 1 is no systemd.
    Environment container{{"NOTIFY_SOCKET", "/run/n"}};
    (void)ServiceUnit::take(container, 7, 1);
    CHECK(container.contains("NOTIFY_SOCKET"));
}

TEST_CASE("a unit runs workers as root only if it is allowed to; a shell and a container always do") {
    CHECK(unit().check_user(0, true).has_value());
    CHECK(unit().check_user(1000, false).has_value());
    CHECK(ServiceUnit().check_user(0, false).has_value());
    const auto refused = unit().check_user(0, false);
    REQUIRE(refused.has_error());
    CHECK(refused.error().context.find("User=") != std::string::npos);
    CHECK(refused.error().context.find("--allow-root") != std::string::npos);
}

TEST_CASE("a second unit of one job is refused while the first one lives") {
    const auto job = "service-unit-test-" + std::to_string(::getpid());
    for (const auto& name : {job, job + std::string(200, 'x')}) {
        auto first = unit(), second = unit();
        CHECK(first.claim(name).has_value());
        const auto refused = second.claim(name);
        REQUIRE(refused.has_error());
        CHECK(refused.error().code == Errc::already_exists);
        CHECK(refused.error().context.find("process " + std::to_string(::getpid())) != std::string::npos);
        CHECK(second.claim(name + "-other").has_value());
        first = ServiceUnit();
        CHECK(second.claim(name).has_value());
        CHECK(ServiceUnit().claim(name).has_value());  // no unit: two by hand are nobody's mistake
    }
}
