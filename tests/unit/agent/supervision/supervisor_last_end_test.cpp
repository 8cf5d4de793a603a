// How a round ended for this node: what a node that then loses the rendezvous has to tell instead of a verdict.
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

const std::string round_0 = "round 0 ended: rank 0 failed";
const std::string fence = "ranks 2 to 3: killing the workers at once: silent";

void workers_go(Story& story) {
    story.ended(0, Signaled{SIGKILL, false});
    story.ended(1, Signaled{SIGKILL, false});
    story.tree_empty();
}

/// Of the ending, if the rendezvous is lost now.
std::string last_end(Story story) {
    story.lost();
    if (story.phase() != Phase::done) workers_go(story);
    REQUIRE(story.phase() == Phase::done);
    return std::get<NoRendezvous>(std::get<Finish>(story.last().actions.back()).ending).last_end;
}

}  // namespace

TEST_CASE("a node that loses the rendezvous tells how its last round ended, if it has") {
    CHECK(last_end(Story::joining()).empty());
    CHECK(last_end(Story::running()).empty());
    Story story = Story::draining();
    CHECK(last_end(story) == round_0);
    workers_go(story);
    story.store_opened();
    CHECK(story.phase() == Phase::joining);
    CHECK(last_end(story) == round_0);
    story.assigned(1);
    CHECK(last_end(story).empty());  // that one is over
}

TEST_CASE("that its own workers were killed is what a node tells, whatever the daemon says of that round later") {
    Story story = Story::running();
    story.fenced();
    CHECK(last_end(story) == fence);
    story.round_ended(0);
    CHECK(last_end(story) == fence);
    Story other = Story::draining();
    other.fenced();
    CHECK(last_end(other) == round_0);  // they were being stopped for that
}

TEST_CASE(
    "workers that are killed after the grace are named, at once and at the end; those of a second signal are not") {
    Story story = Story::running();
    story.stop(SIGTERM);
    story.ended(0, Exited{0});
    story.elapse(30s);
    const std::string killed = "rank 3 had not ended 30 s after SIGTERM (--shutdown-timeout) and was killed";
    CHECK(story.last().notices ==
          std::vector<std::string>{killed + "; if workers need more time, e.g. to save, raise --shutdown-timeout"});
    story.ended(1, Signaled{SIGKILL, false});
    story.tree_empty();
    CHECK(std::get<Cancelled>(std::get<Finish>(story.last().actions.back()).ending).killed == killed);

    Story hurried = Story::running();
    hurried.stop(SIGTERM);
    hurried.stop(SIGTERM);
    CHECK(hurried.last().notices == std::vector<std::string>{"SIGTERM again: killing the remaining processes"});

    Story restarted = Story::draining();
    restarted.elapse(29s);
    REQUIRE(restarted.last().notices.size() == 1);
    CHECK(restarted.last().notices[0].find("--shutdown-timeout") != std::string::npos);
}
