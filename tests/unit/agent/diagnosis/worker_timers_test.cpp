#include "agent/diagnosis/worker_timers.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

std::string request(int pid, std::string_view scope, double at, int signal = 9) {
    return cat("{\"version\": 1, \"pid\": ", pid, ", \"scope_id\": \"", scope, "\", \"expiration_time\": ", at,
               ", \"signal\": ", signal, "}\n");
}

/// At 0 s of the wall clock the steady one is at 1000 s.
TimerNow at(double wall_s) {
    return {wall_s, Instant(1000s) + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wall_s))};
}

}  // namespace

TEST_CASE("a timer that is not released runs out once, and the earliest of a process is told") {
    WorkerTimers timers;
    CHECK(timers.read(cat(request(42, "outer", 100), request(42, "inner", 50), request(43, "x", 60)), at(0)) == 0);
    CHECK(timers.next_expiry() == Instant(1050s));
    CHECK(timers.take_expired(Instant(1049s)).empty());
    const auto expired = timers.take_expired(Instant(1055s));
    REQUIRE(expired.size() == 1);
    CHECK(expired[0].pid == 42);
    CHECK(expired[0].scope == "inner");
    CHECK(expired[0].signal == 9);
    CHECK(expired[0].late == 5s);
    CHECK(timers.next_expiry() == Instant(1060s));  // the outer one went with its process
}

TEST_CASE("a released, renewed or forgotten timer does not run out") {
    WorkerTimers timers;
    timers.read(cat(request(42, "a", 50), request(43, "b", 50), request(44, "c", 50), request(45, "d", 50)), at(0));
    timers.read(cat(request(42, "a", -1, 0), request(43, "b", 500)), at(0));
    timers.read(request(45, "d", -1, 9), at(0));
    timers.forget(44);
    CHECK(timers.take_expired(Instant(1100s)).empty());
    CHECK(timers.next_expiry() == Instant(1500s));
}

TEST_CASE("a timer without a signal ends nobody") {
    WorkerTimers timers;
    timers.read(request(42, "a", 50, 0), at(0));
    CHECK(timers.take_expired(Instant(1100s)).empty());
    CHECK(timers.next_expiry() == no_deadline);
}

TEST_CASE("lines come in pieces") {
    WorkerTimers timers;
    for (const char byte : request(42, "a", 50)) CHECK(timers.read({&byte, 1}, at(0)) == 0);
    CHECK(timers.take_expired(Instant(1051s)).size() == 1);
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
        "{\"pid\": 42.5, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}\n",
        "{\"pid\": 42, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9.5}\n",
        "{\"pid\": 42, \"expiration_time\": 1, \"signal\": 9}\n",
        cat(std::string(100'000, '{'), '\n'),
        cat(std::string(100'000, 'x'), '\n')};
    for (const auto& line : refused) {
        INFO(line.substr(0, 80));
        WorkerTimers timers;
        CHECK(timers.read(line, at(0)) == 1);
        CHECK(timers.read(request(42, "a", 50), at(0)) == 0);
        CHECK(timers.take_expired(Instant(1051s)).size() == 1);
    }
}

TEST_CASE("a wall clock that is set by an hour lets no timer run out, and holds none back") {
    for (const double jump_s : {3600.0, -3600.0}) {
        WorkerTimers timers;
        timers.read(request(42, "before", 10'050), {10'000, Instant(1000s)});
        // The worker reads the same clock.
        timers.read(request(43, "after", 10'070 + jump_s), {10'010 + jump_s, Instant(1010s)});
        CHECK(timers.take_expired(Instant(1049s)).empty());
        const auto first = timers.take_expired(Instant(1050s));
        REQUIRE(first.size() == 1);
        CHECK(first[0].pid == 42);
        CHECK(timers.take_expired(Instant(1069s)).empty());
        CHECK(timers.take_expired(Instant(1070s)).size() == 1);
    }
    WorkerTimers timers;
    timers.read(request(42, "late", 50), at(60));
    timers.read(request(43, "never", 1e300), at(60));
    CHECK(timers.take_expired(Instant(1060s)).size() == 1);
    CHECK(timers.next_expiry() < Instant(1060s) + 31 * 24h);
}

TEST_CASE("timers have a limit") {
    WorkerTimers timers;
    std::size_t refused = 0;
    for (std::size_t i = 0; i < WorkerTimers::timers_max + 5; ++i)
        refused += timers.read(request(static_cast<int>(i) + 1, "a", 50), at(0));
    CHECK(refused == 5);
}
