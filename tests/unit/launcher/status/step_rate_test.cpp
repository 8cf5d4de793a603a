#include "launcher/status/step_rate.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

constexpr Instant first_look{};

}  // namespace

TEST_CASE("the rate is that of the last minute, and is unknown until the step has changed twice") {
    StepRate rate;
    CHECK_FALSE(rate.per_second(first_look));
    rate.note(-1, first_look);
    rate.note(100, first_look);
    CHECK_FALSE(rate.per_second(first_look + 1s));
    rate.note(120, first_look + 2s);  // Its report came 10 s after the one before, whenever that was seen.
    CHECK_FALSE(rate.per_second(first_look + 5s));
    rate.note(140, first_look + 12s);
    CHECK(rate.per_second(first_look + 12s) == Approx(2.0));
    CHECK(rate.per_second(first_look + 22s) == Approx(2.0));  // The next report is not due yet.
    for (int i = 1; i <= 11; ++i) rate.note(140 + 10 * i, first_look + 12s + 10s * i);
    CHECK(rate.per_second(first_look + 122s) == Approx(1.0));
}

TEST_CASE("a job that stands becomes slower, and a restart begins anew") {
    StepRate rate;
    rate.note(100, first_look);
    rate.note(200, first_look + 10s);
    rate.note(300, first_look + 20s);
    rate.note(300, first_look + 50s);
    CHECK(rate.unchanged(first_look + 50s) == 30s);
    CHECK(rate.per_second(first_look + 125s) == Approx(1.0));
    rate.note(150, first_look + 130s);
    CHECK_FALSE(rate.per_second(first_look + 130s));
    CHECK(rate.unchanged(first_look + 131s) == 1s);
    rate.note(-1, first_look + 140s);
    CHECK(rate.unchanged(first_look + 141s) == 0s);
}
