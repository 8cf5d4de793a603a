#include "rendezvous/wire/native/heartbeat_pace.h"

#include "tests/support/catch.h"

namespace muster::native {

TEST_CASE("a small round has twenty heartbeats a lease") {
    CHECK(heartbeat_pace(5s, 1) == 250ms);
    CHECK(heartbeat_pace(5s, 5'000) == 250ms);
}

TEST_CASE("beyond 20,000 heartbeats a second a round's are slower, and never slower than ten a lease") {
    CHECK(heartbeat_pace(5s, 8'000) == 400ms);
    CHECK(heartbeat_pace(5s, 10'000) == 500ms);
    CHECK(heartbeat_pace(5s, 20'000) == 500ms);
    CHECK(heartbeat_pace(10s, 20'000) == 1s);
    CHECK(heartbeat_pace(60s, 20'000) == 3s);
}

TEST_CASE("a lease is long enough for a round if its slowest pace keeps to 20,000 heartbeats a second") {
    CHECK(lease_for(10'000) == 5s);
    CHECK(heartbeat_pace(lease_for(20'000), 20'000) * 20'000 == Duration{1s} * 20'000);
}

TEST_CASE("whatever a daemon tells, the pace is one that the lease allows") {
    CHECK(bounded_heartbeat(5s, 0s) == 250ms);
    CHECK(bounded_heartbeat(5s, 300ms) == 300ms);
    CHECK(bounded_heartbeat(5s, 4'000'000s) == 500ms);
}

}  // namespace muster::native
