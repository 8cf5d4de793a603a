#include "agent/core/worker_timers.h"

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

std::string request(int pid, std::string_view scope, double at, int signal = 9) {
    return cat("{\"version\": 1, \"pid\": ", pid, ", \"scope_id\": \"", scope, "\", \"expiration_time\": ", at,
               ", \"signal\": ", signal, "}\n");
}

}  // namespace

TEST_CASE("a timer that is not released runs out once, and the earliest of a process is told") {
    WorkerTimers timers;
    CHECK(timers.read(cat(request(42, "outer", 100), request(42, "inner", 50), request(43, "x", 60))) == 0);
    CHECK(timers.next_expiry_s() == 50.0);
    CHECK(timers.take_expired(49).empty());
    const auto expired = timers.take_expired(55);
    REQUIRE(expired.size() == 1);
    CHECK(expired[0].pid == 42);
    CHECK(expired[0].scope == "inner");
    CHECK(expired[0].signal == 9);
    CHECK(expired[0].late_s == 5.0);
    CHECK(timers.next_expiry_s() == 60.0);  // the outer one went with its process
}

TEST_CASE("a released, renewed or forgotten timer does not run out") {
    WorkerTimers timers;
    timers.read(cat(request(42, "a", 50), request(43, "b", 50), request(44, "c", 50), request(45, "d", 50)));
    timers.read(cat(request(42, "a", -1, 0), request(43, "b", 500)));
    timers.read(request(45, "d", -1, 9));
    timers.forget(44);
    CHECK(timers.take_expired(100).empty());
    CHECK(timers.next_expiry_s() == 500.0);
}

TEST_CASE("a timer without a signal ends nobody") {
    WorkerTimers timers;
    timers.read(request(42, "a", 50, 0));
    CHECK(timers.take_expired(100).empty());
    CHECK_FALSE(timers.next_expiry_s().has_value());
}

TEST_CASE("lines come in pieces") {
    WorkerTimers timers;
    for (const char byte : request(42, "a", 50)) CHECK(timers.read({&byte, 1}) == 0);
    CHECK(timers.take_expired(51).size() == 1);
}

TEST_CASE("what is no request is refused, and the next line is read") {
    const std::vector<std::string> refused = {
        "x\n",
        "\n",
        "[]\n",
        "{\n",
        request(0, "a", 50),
        request(-5, "a", 50),
        request(42, "a", 50, 65),
        "{\"pid\": 42, \"scope_id\": 7, \"expiration_time\": 1, \"signal\": 9}\n",
        "{\"pid\": \"42\", \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}\n",
        "{\"pid\": 42, \"expiration_time\": 1, \"signal\": 9}\n",
        cat(std::string(100'000, '{'), '\n'),
        cat(std::string(100'000, 'x'), '\n')};
    for (const auto& line : refused) {
        INFO(line.substr(0, 80));
        WorkerTimers timers;
        CHECK(timers.read(line) == 1);
        CHECK(timers.read(request(42, "a", 50)) == 0);
        CHECK(timers.take_expired(51).size() == 1);
    }
}

TEST_CASE("timers have a limit") {
    WorkerTimers timers;
    std::size_t refused = 0;
    for (std::size_t i = 0; i < WorkerTimers::timers_max + 5; ++i)
        refused += timers.read(request(static_cast<int>(i) + 1, "a", 50));
    CHECK(refused == 5);
}
