// The site's own checks before a join.
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

using Health = HealthChecked::Health;
const std::string healthy_join = "SendJoin(after -1, store 4000)";
const std::string sick_join = "SendJoin(after -1, store 4000, sick)";

Story checked(SupervisorConfig::SickNode sick_node = SupervisorConfig::SickNode::parks) {
    auto config = Story::config();
    config.sick_node = sick_node;
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
        CHECK(story.step(HealthChecked{health, "it hangs"}) == healthy_join);
        CHECK(story.last().notices.size() == (health == Health::unknown ? 1 : 0));
        CHECK(story.step(HealthChecked{Health::sick, "a second answer"}) == "");
    }
}

TEST_CASE("a sick node joins with what was found, is checked again, and joins once more when it is healthy") {
    Story story = checked();
    story.store_opened();
    CHECK(story.step(HealthChecked{Health::sick, "GPU 3 is lost"}) == sick_join);
    CHECK(story.last().notices.size() == 1);
    CHECK(story.parked() == "");
    CHECK(story.time_left() == 60s);
    CHECK(story.elapse(59s) == "");
    CHECK(story.elapse(1s) == "CheckHealth");
    CHECK(story.elapse(1h) == "");
    // Neither the same finding, whatever its numbers, nor a check that says nothing changes anything.
    CHECK(story.step(HealthChecked{Health::sick, "GPU 5 is lost"}) == "");
    CHECK(story.elapse(60s) == "CheckHealth");
    CHECK(story.step(HealthChecked{Health::sick, "/dev/shm is full"}) == sick_join);
    CHECK(story.elapse(60s) == "CheckHealth");
    CHECK(story.step(HealthChecked{Health::unknown, "it hangs"}) == "");
    CHECK(story.elapse(60s) == "CheckHealth");
    CHECK(story.step(HealthChecked{Health::healthy}) == healthy_join);
    CHECK(story.time_left() == Duration::max());
    CHECK(story.assigned(0).starts_with("StartWorkers"));
}

TEST_CASE("a node whose finding is not looked at again promises no further check") {
    auto config = Story::config();
    config.checks_health = true;
    config.health_interval = {};
    Story story(config);
    story.begin();
    story.store_opened();
    CHECK(story.step(HealthChecked{Health::sick, "--preflight: slow; to take part, start muster there again"}) ==
          sick_join);
    CHECK(story.last().notices ==
          std::vector<std::string>{
              "this node is sick, and takes part in no round: --preflight: slow; to take part, start "
              "muster there again"});
    CHECK(story.parked() == "");
    CHECK(story.time_left() == Duration::max());
}

TEST_CASE("a sick node that is needed all the same runs, and is checked before its next join") {
    Story story = checked();
    story.store_opened();
    story.step(HealthChecked{Health::sick, "hot"});
    story.elapse(60s);
    CHECK(story.assigned(0).starts_with("StartWorkers"));
    CHECK(story.step(HealthChecked{Health::healthy}) == "");  // of the question before the round
    CHECK(story.time_left() == Duration::max());
    story.started(0);
    story.started(1);
    story.round_ended(0);
    story.ended(0, Signaled{SIGTERM});
    story.ended(1, Signaled{SIGTERM});
    story.tree_empty();
    CHECK(story.store_opened() == "CheckHealth");
    CHECK(story.step(HealthChecked{}) == "SendJoin(after 0, store 4000)");
}

TEST_CASE("the end of the job says that a node was parked, and a stop ends the checks") {
    Story story = checked();
    story.store_opened();
    story.step(HealthChecked{Health::sick, "hot"});
    Story stopped = story;
    CHECK(stopped.stop(SIGTERM) == "SendLeave(stopped by SIGTERM); CloseStore; Finish(Cancelled SIGTERM)");
    CHECK(stopped.elapse(1h) == "");
    story.parked();
    story.job_succeeded();
    CHECK(std::get<JobSucceeded>(story.ending()).unhealthy == "hot");
}

TEST_CASE("a sick node that is the whole job leaves, one that hosts the rendezvous of others joins") {
    for (auto what : {SupervisorConfig::SickNode::leaves, SupervisorConfig::SickNode::joins}) {
        Story story = checked(what);
        story.store_opened();
        CHECK(story.step(HealthChecked{Health::sick, "hot"}) ==
              (what == SupervisorConfig::SickNode::joins ? sick_join : "CloseStore; Finish(Drained hot)"));
    }
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
