// TCP end to end, ranks as processes: one of them is killed or stopped at chance moments, and all others learn which.
#include <signal.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/own_process.h"
#include "tests/support/ranks.h"

namespace muster {

using namespace runtime;
using test::join_over_tcp;

namespace {

constexpr int size = 3;
constexpr int victim = 1;

/// One round of operations of a kind, on a rank.
using Once = std::function<Result<void>(Transport&, int rank)>;

/// 0 when the failure that ends the operations has all of `words`.
int run_until_failure(const GroupTerms& terms, const Once& once, const std::vector<std::string>& words,
                      TcpAlgorithm algorithm) {
    const auto world = join_over_tcp(terms, "127.0.0.1", 0, algorithm);
    if (!test::all_come(terms, "formed")) return 3;
    if (terms.place->publish(cat("ready/", terms.rank), "1", no_deadline).has_error()) return 3;
    for (;;) {
        const auto done = once(*world, terms.rank);
        if (done) continue;
        for (const auto& word : words) {
            if (done.error().context.find(word) != std::string::npos) continue;
            std::ofstream("/dev/stderr") << "rank " << terms.rank << ": " << done.error().context << '\n';
            return 1;
        }
        return 0;
    }
}

/// Sends `signal` to the victim of each of `groups` while all go round, `times` times. Survivors' errors must have
/// `words`.
void require_told(const std::vector<Once>& groups, int times, std::uint32_t seed, int signal,
                  const std::vector<std::string>& words, TcpAlgorithm algorithm = TcpAlgorithm::automatic) {
    std::mt19937 random(seed);
    for (int i = 0; i < times; ++i) {
        std::deque<test::RankProcesses> all;
        for (const auto& once : groups)
            all.emplace_back(size,
                             [&](const GroupTerms& terms) { return run_until_failure(terms, once, words, algorithm); });
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        for (const auto& ranks : all) {
            test::MeetingInFolder place(ranks.file(""));
            REQUIRE(place.collect({"ready/0", "ready/1", "ready/2"}, deadline).has_value());
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));  // the moment is what is drawn
            ::kill(ranks.pid(victim), signal);
        }
        for (auto& ranks : all) {
            while (!(ranks.ended(0) && ranks.ended(2)) && std::chrono::steady_clock::now() < deadline)
                std::this_thread::sleep_for(1ms);
            ::kill(ranks.pid(victim), SIGKILL);
            const auto ends = ranks.join();
            INFO("seed " << seed << ", run " << i);
            CHECK((ends[0].exited && ends[0].code == 0));
            CHECK((ends[2].exited && ends[2].code == 0));
        }
    }
}

/// Each kind of operation, small and large, with `limit` for each of them.
std::vector<Once> operations(Duration limit) {
    static std::vector<float> data(size * 300'000), other(size * 300'000);
    const auto large = buffer(std::span(data.data(), 300'000));
    const auto small = buffer(std::span(data.data(), 100));
    const ConstBuffer wide(data.data(), data.size(), DataType::f32);
    const auto out = buffer(std::span(other));
    const auto piece = buffer(std::span(other.data(), 300'000));
    const auto always = [limit](const Operation& operation) {
        return [limit, operation](Transport& world, int) { return world.run(operation, test::within(limit)); };
    };
    return {
        always(barrier()),
        always(all_reduce(small, ReduceOp::sum)),
        always(all_reduce(large, ReduceOp::avg)),
        always(reduce_scatter(wide, piece, ReduceOp::max)),
        always(all_gather(large, out)),
        always(broadcast(small, victim)),
        always(broadcast(large, victim)),
        always(broadcast(large, 0)),
        always(all_to_all(wide, out, size)),
        [limit, large, piece](Transport& world, int rank) {
            // Rank 0 waits for rank 2, which waits for rank 1: whoever's deadline comes first, it is rank 1 that
            // stopped.
            Result<void> sent;
            std::thread sender([&] { sent = world.transfer(send(large, (rank + 1) % size), test::within(limit)); });
            const auto got = world.transfer(receive(piece, (rank + size - 1) % size), test::within(limit));
            sender.join();
            return got ? sent : got;
        },
    };
}

}  // namespace

TEST_CASE("survivors of a killed rank name it, whatever they were doing") {
    std::uint32_t seed = 0;
    for (const auto& once : operations(60s)) require_told({once}, 5, ++seed, SIGKILL, {"rank 1 (pid ", "died in "});
}

TEST_CASE("a stopped rank is named at the deadline, whatever the others were doing") {
    require_told(operations(8s), 1, 100, SIGSTOP, {"rank 1 (pid ", "timed out"});
}

TEST_CASE("in an all_reduce from rank to rank, too, all learn who died and who stopped") {
    std::vector<float> data(300'000);
    const auto with = [&data](Duration limit) {
        return [&data, limit](Transport& world, int) {
            return world.run(all_reduce(buffer(std::span(data)), ReduceOp::sum), test::within(limit));
        };
    };
    require_told({with(60s)}, 10, 200, SIGKILL, {"rank 1 (pid ", "died in "}, TcpAlgorithm::ring);
    require_told({with(8s), with(8s), with(8s)}, 1, 300, SIGSTOP, {"rank 1 (pid ", "timed out"}, TcpAlgorithm::ring);
}

TEST_CASE("a rank that dies while the group forms is named") {
    for (int i = 0; i < 20; ++i) {
        test::RankProcesses ranks(size, [&](const GroupTerms& given) {
            GroupTerms terms = given;
            terms.meeting_timeout = 60s;
            const auto world = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}});
            // Those who were quick have a group, and lose it.
            Result<void> done = world ? Result<void>() : world.error();
            while (done) done = (*world)->run(barrier(), test::within(60s));
            if (done.error().context.find("rank 1 (pid ") != std::string::npos) return 0;
            std::ofstream("/dev/stderr") << "rank " << terms.rank << ": " << done.error().context << '\n';
            return 1;
        });
        test::MeetingInFolder place(ranks.file(""));
        REQUIRE(place.collect({"world/tcp/1"}, std::chrono::steady_clock::now() + 60s).has_value());
        std::this_thread::sleep_for(std::chrono::microseconds(i * 100));  // the moment is what is drawn
        ::kill(ranks.pid(victim), SIGKILL);
        const auto ends = ranks.join(std::chrono::seconds(90));
        CHECK((ends[0].exited && ends[0].code == 0));
        CHECK((ends[2].exited && ends[2].code == 0));
    }
}

TEST_CASE("groups whose peer was killed leave neither descriptors nor threads with the survivor") {
    std::vector<float> data(200'000);
    std::optional<test::Holdings> before;  // of the first group's end: what a process keeps for all is there
    for (int i = 0; i < test::cycles(200); ++i) {
        test::RankProcesses peer(1, [&](const GroupTerms& given) {
            GroupTerms terms = given;
            terms.rank = 1;
            terms.size = 2;
            const auto world = join_over_tcp(terms);
            while (world->run(all_reduce(buffer(std::span(data)), ReduceOp::sum), test::within(60s))) {
            }
            return 0;
        });
        const auto place = std::make_shared<test::MeetingInFolder>(peer.file(""));
        {
            const auto world = join_over_tcp({.rank = 0, .size = 2, .id = "world", .place = place});
            for (int turn = 0;; ++turn) {
                if (turn == i % 4) ::kill(peer.pid(0), SIGKILL);
                const auto done = world->run(all_reduce(buffer(std::span(data)), ReduceOp::sum), test::within(60s));
                if (done) continue;
                REQUIRE(done.error().context.find("rank 1 (pid ") != std::string::npos);
                break;
            }
        }
        if (i == 0) before.emplace();
    }
    CHECK(before->left_over_by(std::chrono::steady_clock::now() + 60s) == "");
}

TEST_CASE("a rank is seen to die although a child that it forked lives on with all of its descriptors") {
    int leash[2] = {};  // the child lives until this process closes its end
    REQUIRE(::pipe(leash) == 0);
    test::RankProcesses ranks(2, [&](const GroupTerms& terms) {
        ::close(leash[1]);
        const auto world = join_over_tcp(terms);
        if (terms.rank == victim && ::fork() == 0) {
            char end = 0;
            (void)!::read(leash[0], &end, 1);
            ::_exit(0);
        }
        if (terms.place->publish(cat("ready/", terms.rank), "1", no_deadline).has_error()) return 3;
        for (;;) {
            const auto done = world->run(barrier(), test::within(30s));
            if (!done)
                return done.error().context.find("rank 1 (pid ") != std::string::npos &&
                               done.error().context.find("died in ") != std::string::npos
                           ? 0
                           : 1;
        }
    });
    test::MeetingInFolder place(ranks.file(""));
    REQUIRE(place.collect({"ready/0", "ready/1"}, std::chrono::steady_clock::now() + 60s).has_value());
    ::kill(ranks.pid(victim), SIGKILL);
    const auto ends = ranks.join(std::chrono::seconds(90));
    ::close(leash[0]);
    ::close(leash[1]);
    CHECK((ends[0].exited && ends[0].code == 0));
}

}  // namespace muster
