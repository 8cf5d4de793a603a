// What an agent says of its workers so that all nodes together show who does not come, and what it makes of the answer.
#include "agent/diagnosis/hang_watch.h"
#include "rendezvous/wire/native/limits.h"
#include "tests/support/catch.h"
#include "tests/unit/agent/diagnosis/watched_node.h"

namespace muster::agent {

using native::WorkerPace;
using Node = test::WatchedNode;

TEST_CASE("what others are to know of the workers, should the node be lost, is all of them as they were last seen") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.seconds(3);
    const auto seen = node.watch.seen(node.now);
    REQUIRE(seen.size() == 4);
    CHECK(seen[0].at.rank == 4);
    CHECK(seen[0].at.pid == 100);
    CHECK(seen[0].at.inside);
    CHECK(seen[0].at.operation == "all_reduce 41 of world");
    CHECK(seen[2].at.operation == "all_reduce 40 of world");
    CHECK_FALSE(seen[2].at.inside);
    CHECK(seen[2].at.idle_ms == 3000);
    CHECK(seen[2].inside_percent == 30);
    node.train();
    node.second();
    CHECK(node.watch.seen(node.now)[2].at.idle_ms == 0);
}

TEST_CASE("every worker counts once, by what it does, also of more than can be listed") {
    Node node;
    while (node.samples.size() < 40) {
        auto sample = node.samples.back();
        ++sample.local_rank;
        ++sample.rank;
        ++sample.pid;
        node.samples.push_back(sample);
    }
    node.learn();
    CHECK(node.watch.counts(node.now) == native::RankCounts{.training = 40});
    node.wait_for(2);
    for (const std::size_t busy : {5, 6, 7}) node.samples[busy].operation->inside = false;
    node.samples[6].section = "evaluation";
    node.samples[7].state = 'T';
    node.seconds(15);
    CHECK(node.watch.seen(node.now).size() == native::activities_max);
    const auto counts = node.watch.counts(node.now);
    CHECK(counts.sum() == 40);
    CHECK(counts.waiting == 36);
    CHECK(counts.overdue == 2);
    CHECK(counts.section == 1);
    CHECK(counts.stopped == 1);
}

TEST_CASE("who is overdue is said first, then who waits, and no share of those that have begun nothing lately") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.seconds(4);
    for (const auto& worker : node.watch.seen(node.now)) CHECK(worker.pace == WorkerPace::usual);
    node.seconds(2);
    auto seen = node.watch.seen(node.now);
    CHECK(seen[0].pace == WorkerPace::waiting);
    CHECK(seen[3].at.rank == 6);
    CHECK(seen[3].pace == WorkerPace::usual);
    node.seconds(4);
    seen = node.watch.seen(node.now);
    CHECK(seen[0].at.rank == 6);
    CHECK(seen[0].pace == WorkerPace::overdue);
    CHECK(seen[1].pace == WorkerPace::waiting);
    CHECK(seen[1].inside_percent == 30);
    node.seconds(10);
    for (const auto& worker : node.watch.seen(node.now)) CHECK(worker.inside_percent == -1);
    node.train();
    node.second();
    for (const auto& worker : node.watch.seen(node.now)) CHECK(worker.pace == WorkerPace::usual);
}

TEST_CASE("of more workers than a message holds those are told of that say most") {
    Node node;
    for (std::uint32_t i = 4; i < 20; ++i) {
        node.samples.push_back(node.samples.back());
        node.samples.back().local_rank = i;
        node.samples.back().rank = static_cast<std::int32_t>(i) + 4;
    }
    node.learn();
    node.wait_for(19);
    node.seconds(12);
    const auto seen = node.watch.seen(node.now);
    REQUIRE(seen.size() == native::activities_max);
    CHECK(seen[0].at.rank == 23);
    CHECK(seen[0].pace == WorkerPace::overdue);
}

TEST_CASE("rank 0 is always told of, because the daemon counts the job's steps by it") {
    Node node;
    for (std::uint32_t i = 0; i < 20; ++i) {
        if (i >= 4) node.samples.push_back(node.samples.back());
        node.samples[i].local_rank = i;
        node.samples[i].rank = i == 3 ? 0 : static_cast<std::int32_t>(i) + 4;
    }
    node.learn();
    node.wait_for(3);
    for (int i = 0; i < 12; ++i) {
        node.samples[3].cpu += 1s;
        node.second();
    }
    const auto seen = node.watch.seen(node.now);
    REQUIRE(seen.size() == native::activities_max);
    CHECK(seen[0].at.rank == 0);
    CHECK(seen[0].pace == WorkerPace::usual);
    CHECK(seen[1].pace == WorkerPace::waiting);
}

TEST_CASE("slow is not overdue, and an operation that is soon another one is not waited in") {
    const auto ever = [](WorkerPace pace, auto slow, HangConfig config = {}) {
        Node node(config);
        node.learn();
        bool found = false;
        for (int i = 0; i < 600; ++i) {
            slow(node.samples[2], i);
            node.second();
            for (const auto& worker : node.watch.seen(node.now))
                found = found || (worker.at.rank == 6 && worker.pace == pace);
        }
        return found;
    };
    const auto overdue = [&](auto slow, HangConfig config = {}) { return ever(WorkerPace::overdue, slow, config); };
    CHECK(overdue([](WorkerSample&, int) {}));
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.cpu += 30ms; }));
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.io_bytes += 4096; }));
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.section = "evaluation"; }));
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.operation.reset(); }));
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.operation->count = 15; }));
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.operation->inside = true; }));
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.operation->longest_gap = 300s; }));
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.state = 'T'; }));  // ended here, whoever waits
    CHECK_FALSE(overdue([](WorkerSample& sample, int) { sample.state = 't'; }));
    CHECK_FALSE(overdue([](WorkerSample&, int) {}, {.deadline_min = 0s}));

    const auto inside = [](WorkerSample& sample, int) { sample.operation->inside = true; };
    CHECK(ever(WorkerPace::waiting, inside));
    CHECK_FALSE(ever(WorkerPace::waiting, inside, {.deadline_min = 0s}));
    // It waits for nobody: something holds it where it is.
    for (const char state : {'T', 't', 'D'})
        CHECK_FALSE(ever(WorkerPace::waiting, [state](WorkerSample& sample, int) {
            sample.operation->inside = true;
            sample.state = state;
        }));
    CHECK_FALSE(ever(WorkerPace::waiting, [](WorkerSample& sample, int i) {
        sample.operation->inside = true;
        sample.operation->count = 100 + static_cast<std::uint64_t>(i / 4);
    }));
}

TEST_CASE("whoever waits on another node is like one beside the worker that does not come") {
    const native::JobSeen seen{0,
                               native::WaitingWorker{"gpu01", 0, 90, "all_reduce 41 of world"},
                               {{6, "rank 6 of here"}, {-1, "ranks of there and here"}, {30, "rank 30 of there"}}};
    Node node({.host = "gpu07"});
    node.learn();
    node.samples.erase(node.samples.begin());
    const auto job_seen = [&] {
        auto step = node.watch.job_seen(seen, node.now);
        node.notices = step.notices;
        node.stacks = step.stacks;
        CHECK(step.ends.empty());
    };
    for (std::size_t i : {0U, 2U}) node.samples[i].section = "evaluation";
    node.seconds(9);
    job_seen();  // too soon for its own deadline: this node knows better
    CHECK(node.notices == std::vector<std::string>{"ranks of there and here", "rank 30 of there"});
    node.seconds(3);
    CHECK(node.missing() == 0);
    job_seen();
    CHECK(node.notices == std::vector<std::string>{
                              "ranks of there and here", "rank 30 of there",
                              "rank 6 (pid 102) on gpu07 has done nothing for 12 s (asleep, after all_reduce 40 of "
                              "world); it is missing from all_reduce 41 of world, in which rank 0 (pid 90) on gpu01 "
                              "waits"});
    CHECK(node.stacks == std::vector<std::uint32_t>{2});
    job_seen();
    CHECK(node.missing() == 0);  // said once
    node.seconds(60);
    CHECK(node.missing() == 0);
    node.samples[1].cpu += 500ms;
    node.seconds(15);
    CHECK(node.missing() == 0);  // it had moved: that other one may have been waiting for somebody else since
    node.samples[1].state = 'T';
    node.seconds(12);
    CHECK(node.ends.size() == 1);
}

TEST_CASE("the stack of the worker that waits is taken on its own node") {
    Node node;
    node.learn();
    node.wait_for(4);
    node.seconds(6);
    const native::JobSeen seen{0, native::WaitingWorker{"here", 5, 101, "all_reduce 41 of world"}, {{30, "rank 30"}}};
    const auto step = node.watch.job_seen(seen, node.now);
    CHECK(step.stacks == std::vector<std::uint32_t>{1});
    CHECK(step.notices == std::vector<std::string>{"rank 30"});
}

TEST_CASE("what the daemon says after a pause of the agent, before the first look, blames nobody for the pause") {
    const native::JobSeen seen{0, native::WaitingWorker{"gpu01", 0, 90, "all_reduce 41 of world"}, {}};
    Node node;
    node.learn();
    node.wait_for(2);
    node.samples[1].state = 'T';
    node.seconds(5);
    node.now += 30s;
    const auto step = node.watch.job_seen(seen, node.now);
    CHECK(step.notices.empty());
    CHECK(step.ends.empty());
    node.seconds(9);
    CHECK(node.missing() == 0);
    CHECK(node.ends.empty());
    node.seconds(3);
    CHECK(node.missing() == 1);
    CHECK(node.ends.size() == 1);
}

}  // namespace muster::agent
