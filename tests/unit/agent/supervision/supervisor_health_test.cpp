// The site's own checks before a join.
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

using Health = HealthChecked::Health;
const std::string join = "SendJoin(after -1, store 4000)";

Story checked() {
    auto config = Story::config();
    config.checks_health = true;
    Story story(config);
    story.begin();
    return story;
}

}  // namespace

TEST_CASE("a node joins when its checks have passed, or say nothing") {
    for (auto health : {Health::healthy, Health::unknown}) {
        Story story = checked();
        CHECK(story.store_opened() == "CheckHealth");
        CHECK(story.elapse(1h) == "");
        CHECK(story.step(HealthChecked{health, "it hangs"}) == join);
        CHECK(story.last().notices.size() == (health == Health::unknown ? 1 : 0));
        CHECK(story.step(HealthChecked{Health::sick, "a second answer"}) == "");
    }
}

TEST_CASE("a sick node leaves where it would have joined") {
    Story story = checked();
    story.store_opened();
    CHECK(story.step(HealthChecked{Health::sick, "GPU 3 is lost"}) == "CloseStore; Finish(Drained GPU 3 is lost)");
}

TEST_CASE("between rounds only a node that the failure touched is checked") {
    Story story = checked();
    story.store_opened();
    story.step(HealthChecked{});
    story.assigned(0);
    story.started(0);
    story.started(1);
    Story other = story;
    story.ended(0, Exited{7});
    story.ended(1, Signaled{SIGTERM});
    story.tree_empty();
    story.round_ended(0);
    CHECK(story.store_opened() == "CheckHealth");
    CHECK(story.step(HealthChecked{}) == "SendJoin(after 0, store 4000)");

    other.round_ended(0);
    other.ended(0, Signaled{SIGTERM});
    other.ended(1, Signaled{SIGTERM});
    other.tree_empty();
    CHECK(other.store_opened() == "SendJoin(after 0, store 4000)");
}

TEST_CASE("a fenced node is checked, and a stop needs no answer") {
    Story story = checked();
    story.store_opened();
    story.step(HealthChecked{});
    story.assigned(0);
    story.fenced();
    story.ended(0, Signaled{SIGKILL});
    story.ended(1, Signaled{SIGKILL});
    story.tree_empty();
    CHECK(story.store_opened() == "CheckHealth");
    CHECK(story.stop(SIGTERM) == "SendLeave(stopped by SIGTERM); CloseStore; Finish(Cancelled SIGTERM)");
}
