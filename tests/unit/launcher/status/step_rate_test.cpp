#include "launcher/status/step_rate.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

constexpr Instant first_look{};

}  // namespace

TEST_CASE("the rate is that of the last minute, and is unknown until two steps were seen") {
    StepRate rate;
    CHECK_FALSE(rate.per_second(first_look));
    rate.note(-1, first_look);
    rate.note(100, first_look);
    CHECK_FALSE(rate.per_second(first_look + 5s));
    rate.note(120, first_look + 10s);
    CHECK(rate.per_second(first_look + 10s) == Approx(2.0));
    CHECK(rate.per_second(first_look + 20s) == Approx(2.0));  // The next report is not due yet.
    for (int i = 2; i <= 12; ++i) rate.note(120 + 10 * (i - 1), first_look + 10s * i);
    CHECK(rate.per_second(first_look + 120s) == Approx(1.0));
}

TEST_CASE("a job that stands becomes slower, and a restart first_looks anew") {
    StepRate rate;
    rate.note(100, first_look);
    rate.note(200, first_look + 10s);
    rate.note(200, first_look + 50s);
    CHECK(rate.unchanged(first_look + 50s) == 40s);
    CHECK(rate.per_second(first_look + 115s) == Approx(1.0));
    rate.note(150, first_look + 120s);
    CHECK_FALSE(rate.per_second(first_look + 120s));
    CHECK(rate.unchanged(first_look + 121s) == 1s);
    rate.note(-1, first_look + 130s);
    CHECK(rate.unchanged(first_look + 131s) == 0s);
}
