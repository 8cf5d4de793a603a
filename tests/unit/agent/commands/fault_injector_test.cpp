// What is said of the end of a worker into which a fault was injected.
#include "agent/commands/fault_injector.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"

using namespace muster;
using namespace muster::agent;
using native::Fault;
using native::FaultKind;

namespace {

/// The cause of a worker that segfaulted so long after `fault` was injected into it; and who would have killed it.
std::pair<std::string, Killer> told_after(const Fault& fault, Duration later) {
    boost::asio::io_context loop;
    FaultInjector faults(loop, FaultInjector::Faults::allowed);
    const auto worker = test::fork_with_test();
    if (worker == 0)
        for (;;) ::pause();
    faults.begin_round(2, 0, {});
    faults.worker_started(0, worker);
    const auto answer = faults.inject({.number = 1, .round = 2, .fault = fault});
    const auto injected = std::chrono::steady_clock::now();
    ::kill(worker, SIGKILL);
    ::waitpid(worker, nullptr, 0);
    INFO(answer.text);
    CHECK(answer.done);
    const auto killer = faults.killer_of(0);
    FailureCause cause{CauseKind::memory_fault, "null pointer", {}};
    faults.worker_ended(0, injected + later, cause);
    CHECK(faults.killer_of(0) == Killer::unknown);  // the next worker of this rank
    return {cause.text, killer};
}

}  // namespace

TEST_CASE("a worker that fails long after it was slowed down has not failed of that") {
    const Fault slow{.kind = FaultKind::slow, .for_ms = 30'000, .stopped_percent = 50};
    CHECK(told_after(slow, 10s).first == "null pointer; injected by muster fault slow rank 0 --for 30");
    CHECK(told_after(slow, 3h) == std::pair(std::string("null pointer"), Killer::unknown));
    CHECK(told_after({.kind = FaultKind::stop, .for_ms = 1'000}, 3h).first == "null pointer");
    CHECK(told_after({.kind = FaultKind::stop}, 3h).first == "null pointer; injected by muster fault stop rank 0");
    CHECK(told_after({.kind = FaultKind::kill}, 1ms) ==
          std::pair(std::string("null pointer; injected by muster fault kill rank 0"), Killer::muster));
}

TEST_CASE("a worker that was stopped for a while goes on though it entered the next round in the same process") {
    boost::asio::io_context loop;
    FaultInjector faults(loop, FaultInjector::Faults::allowed);
    const auto worker = test::fork_with_test();
    if (worker == 0)
        for (;;) ::pause();
    faults.begin_round(2, 0, {});
    faults.worker_started(0, worker);
    faults.worker_started(1, worker);
    REQUIRE(faults.inject({.number = 1, .round = 2, .fault = {.kind = FaultKind::stop, .for_ms = 100}}).done);
    int status = 0;
    REQUIRE(::waitpid(worker, &status, WUNTRACED) == worker);
    CHECK(WIFSTOPPED(status));

    faults.begin_round(3, 0, {0});
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (::waitpid(worker, &status, WCONTINUED | WNOHANG) == 0 && std::chrono::steady_clock::now() < limit)
        loop.run_one_for(10ms);
    CHECK(WIFCONTINUED(status));
    const Fault kill{.kind = FaultKind::kill, .rank = 1};
    CHECK_FALSE(faults.inject({.number = 2, .round = 3, .fault = kill}).done);  // this one did not stay
    ::kill(worker, SIGKILL);
    ::waitpid(worker, nullptr, 0);
}
