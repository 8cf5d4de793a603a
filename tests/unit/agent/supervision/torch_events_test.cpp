#include "agent/supervision/torch_events.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;
using nlohmann::json;

namespace {

TorchEvents with_two_workers() {
    TorchEvents events({.run_id = "train", .role = "default", .host = "gpu07", .backend = "c10d", .entry = "train.py"},
                       Instant(100s));
    events.take({.kind = EventKind::round_assigned, .facts = {.group_rank = 1, .node_count = 2, .restart_count = 3}});
    for (const int local_rank : {0, 1})
        events.take({.kind = EventKind::worker_started,
                     .facts = {.pid = 40 + local_rank,
                               .rank = 2 + local_rank,
                               .local_rank = local_rank,
                               .role_rank = 2 + local_rank,
                               .role_world_size = 4}});
    return events;
}

}  // namespace

TEST_CASE("a started worker is a line with the facts that torchrun gives") {
    auto events = with_two_workers();
    const auto lines =
        events.take({.kind = EventKind::worker_started, .facts = {.pid = 42, .rank = 3, .local_rank = 1}});
    REQUIRE(lines.size() == 1);
    const auto line = json::parse(lines[0]);
    CHECK(line["name"] == "torchelastic.worker.status.START");
    CHECK(line["source"] == "WORKER");
    CHECK(line["timestamp"] == 0);
    CHECK(line["metadata"]["global_rank"] == 3);
    CHECK(line["metadata"]["group_rank"] == 1);
    CHECK(line["metadata"]["agent_restarts"] == 3);
    CHECK(json::parse(line["metadata"]["metadata"].get<std::string>())["local_rank"] == json::array({1}));
    CHECK(events.take({.kind = EventKind::node_progress}).empty());
}

TEST_CASE("in a failed job what has not failed was terminated") {
    auto events = with_two_workers();
    events.take({.kind = EventKind::worker_failed, .text = "exit code 1", .facts = {.rank = 3}});
    const auto lines = events.end(false, "a worker failed", Instant(107s));
    REQUIRE(lines.size() == 3);
    CHECK(json::parse(lines[0])["metadata"]["state"] == "TERMINATED");
    CHECK(json::parse(lines[0])["metadata"]["raw_error"].is_null());
    CHECK(json::parse(lines[1])["metadata"]["state"] == "FAILED");
    CHECK(json::parse(lines[1])["metadata"]["raw_error"] == "exit code 1");
    const auto agent = json::parse(lines[2]);
    CHECK(agent["source"] == "AGENT");
    CHECK(agent["metadata"]["raw_error"] == "a worker failed");
    CHECK(agent["metadata"]["total_run_time"] == 7);
    CHECK(agent["metadata"]["global_rank"].is_null());
}

TEST_CASE("a failure of an earlier round is none of the last one") {
    auto events = with_two_workers();
    events.take({.kind = EventKind::worker_failed, .text = "exit code 1", .facts = {.rank = 3}});
    events.take({.kind = EventKind::round_assigned, .facts = {.group_rank = 0, .node_count = 1}});
    events.take({.kind = EventKind::worker_started, .facts = {.rank = 0, .local_rank = 0}});
    const auto lines = events.end(true, {}, Instant(107s));
    REQUIRE(lines.size() == 2);
    CHECK(json::parse(lines[0])["metadata"]["state"] == "SUCCEEDED");
}
