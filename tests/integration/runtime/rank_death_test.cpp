// A rank is killed, at chance moments, while its group runs one kind of operation after another: every survivor gets an
// error that names it, at once, and nothing stays behind.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/own_process.h"
#include "tests/support/ranks.h"

namespace muster {

using namespace runtime;

namespace {

constexpr int size = 3;
constexpr int victim = 1;

/// Runs operations of one kind until one fails; 0 when the failure is the victim's death, in words.
int run_until_failure(const GroupTerms& terms, const std::function<Result<void>(Communicator&)>& once) {
    auto world = test::join_shared_group(terms);
    if (terms.place->publish(cat("ready/", terms.rank), "1", no_deadline).has_error()) return 3;
    for (;;) {
        const auto done = once(world);
        if (done) continue;
        const auto& text = done.error().context;
        if (text.find(cat("rank ", victim, " (pid ")) == std::string::npos || text.find("died") == std::string::npos) {
            std::ofstream("/dev/stderr") << "rank " << terms.rank << ": " << text << '\n';
            return 1;
        }
        const auto again = world.run(barrier());
        return !again && again.error().context == text ? 0 : 2;
    }
}

void require_death_is_told(const std::function<Result<void>(Communicator&, int rank)>& once, int times,
                           std::uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < times; ++i) {
        test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
            return run_until_failure(terms, [&](Communicator& world) { return once(world, terms.rank); });
        });
        test::MeetingInFolder place(ranks.file(""));
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        REQUIRE(place.collect({"ready/0", "ready/1", "ready/2"}, deadline).has_value());
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));  // the moment is what is drawn
        ::kill(ranks.pid(victim), SIGKILL);
        const auto ends = ranks.join();
        INFO("seed " << seed << ", run " << i);
        CHECK((ends[0].exited && ends[0].code == 0));
        CHECK((ends[2].exited && ends[2].code == 0));
    }
}

}  // namespace

TEST_CASE("survivors of a killed rank name it, whatever they were doing") {
    constexpr std::size_t count = 300'000;
    std::vector<float> data(count * size);
    std::vector<float> other(count * size);
    const auto large = buffer(std::span(data.data(), count));
    const auto small = buffer(std::span(data.data(), 100));
    const ConstBuffer wide(data.data(), data.size(), DataType::f32);
    const auto out = buffer(std::span(other));
    const auto piece = buffer(std::span(other.data(), count));
    require_death_is_told([&](Communicator& world, int) { return world.run(barrier()); }, 5, 1);
    require_death_is_told([&](Communicator& world, int) { return world.run(all_reduce(small, ReduceOp::sum)); }, 5, 2);
    require_death_is_told([&](Communicator& world, int) { return world.run(all_reduce(large, ReduceOp::avg)); }, 5, 3);
    require_death_is_told(
        [&](Communicator& world, int) { return world.run(reduce_scatter(wide, piece, ReduceOp::max)); }, 5, 4);
    require_death_is_told([&](Communicator& world, int) { return world.run(all_gather(large, out)); }, 5, 5);
    require_death_is_told([&](Communicator& world, int) { return world.run(broadcast(large, victim)); }, 5, 6);
    require_death_is_told([&](Communicator& world, int) { return world.run(all_to_all(wide, out, size)); }, 5, 7);
    require_death_is_told(
        [&](Communicator& world, int rank) {
            auto sent = world.start(send(large, (rank + 1) % size));
            const auto received = world.run(receive(piece, (rank + size - 1) % size));
            const auto gone = sent.wait();
            return received ? gone : received;
        },
        5, 8);
}

TEST_CASE("a rank that leaves in order is no failure until somebody waits for it") {
    test::RankProcesses ranks(2, [](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        if (!world.run(barrier())) return 1;
        if (terms.rank == 1) return 0;  // the communicator is closed, then the process ends
        const auto done = world.run(barrier());
        return !done && done.error().context.find("closed communicator world") != std::string::npos ? 0 : 2;
    });
    const auto ends = ranks.join();
    CHECK((ends[0].exited && ends[0].code == 0));
    CHECK((ends[1].exited && ends[1].code == 0));
}

TEST_CASE("a stopped rank is named at the deadline") {
    test::RankProcesses ranks(3, [](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms, 2s);
        if (terms.rank == victim) ::raise(SIGSTOP);
        const auto done = world.run(barrier());
        return !done && done.error().code == Errc::timed_out &&
                       done.error().context.find(cat("rank ", victim, " (pid ")) != std::string::npos
                   ? 0
                   : 1;
    });
    // The victim is stopped for good; the others end by themselves.
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!(ranks.ended(0) && ranks.ended(2)) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(1ms);
    }
    ::kill(ranks.pid(victim), SIGKILL);
    const auto ends = ranks.join();
    CHECK((ends[0].exited && ends[0].code == 0));
    CHECK((ends[2].exited && ends[2].code == 0));
}

TEST_CASE("groups whose peer was killed leave neither memory, descriptors nor threads with the survivor") {
    std::optional<test::Holdings> before;  // of the first group's end: what a process keeps for all is there
    for (int i = 0; i < test::cycles(200); ++i) {
        test::RankProcesses peer(1, [](const GroupTerms& given) {
            GroupTerms terms = given;
            terms.rank = 1;
            terms.size = 2;
            auto world = test::join_shared_group(terms);
            std::vector<float> data(1000);
            while (world.run(all_reduce(buffer(std::span(data)), ReduceOp::sum))) {
            }
            return 0;
        });
        {
            auto world = test::join_shared_group(
                {.rank = 0, .size = 2, .id = "world", .place = std::make_shared<test::MeetingInFolder>(peer.file(""))});
            std::vector<float> data(1000);
            for (int turn = 0;; ++turn) {
                if (turn == i % 4) ::kill(peer.pid(0), SIGKILL);
                const auto done = world.run(all_reduce(buffer(std::span(data)), ReduceOp::sum));
                if (done) continue;
                REQUIRE(done.error().context.find("rank 1 (pid ") != std::string::npos);
                break;
            }
        }
        if (i == 0) before.emplace();
    }
    CHECK(before->left_over_by(std::chrono::steady_clock::now() + 60s) == "");
}

}  // namespace muster
