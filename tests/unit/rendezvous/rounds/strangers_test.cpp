// Dialogues with strangers: what somebody who was in no round of this daemon cannot do, whatever it says of itself.
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

TEST_CASE("a refused join does not move the numbers of the rounds") {
    Story story("min=2 max=2 restarts=3");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("join s restarts=9 last_round=4611686018427387904"), "s <- Refused terms_differ"));
    CHECK(says(story.answers("join t last_round=4611686018427387905"), "t <- Refused malformed"));
    CHECK(says(story.answers("fail n0\nrejoin n0\nrejoin n1"), "round 1 sealed with 2 nodes"));
}

TEST_CASE("whatever number a stranger names, each number that the daemon gives is one that it accepts") {
    for (const auto* claim : {"join s last_round=4611686018427387904", "resume s round=4611686018427387904 of=2"}) {
        INFO(claim);
        Story story("min=1 max=2 restarts=9 last_call=1s");
        story.answers("join n0");
        story.answers(claim);
        story.answers("advance 200s\nleave s\nadvance 200s");
        for (int i = 0; i < 3; ++i) {
            const auto again = story.answers("fail n0\nrejoin n0\nadvance 20s");
            CHECK(says(again, "n0 <- Assigned round 23058430092136939"));  // 2^61 and some
            CHECK_FALSE(says(again, "malformed"));
        }
    }
}

}  // namespace muster::test
