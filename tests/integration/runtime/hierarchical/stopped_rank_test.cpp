// A rank that stops in the midst of a collective is the one that all others name, although most of them wait for ranks
// that wait themselves: from rank to rank over TCP, and between nodes with several ranks each.
#include <signal.h>

#include <cstdio>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/hierarchical/node_ranks.h"
#include "tests/integration/runtime/named_ranks.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace muster {

using namespace runtime;

namespace {

using Join = std::function<std::unique_ptr<Transport>(const GroupTerms&)>;
using Once = std::function<Operation(int turn)>;

int run_until_failure(const GroupTerms& terms, const Join& join, const Once& once, int victim) {
    const auto transport = join(terms);
    if (terms.place->publish(cat("ready/", terms.rank), "1", no_deadline).has_error()) return 3;
    Result<void> done;
    for (int turn = 0; done; ++turn) done = transport->run(once(turn), test::within(15s));
    const auto& text = done.error().context;
    if (test::named_in(text) == std::set{victim} && text.find("timed out") != std::string::npos) return 0;
    std::fprintf(stderr, "rank %d: %s\n", terms.rank, text.c_str());
    return 1;
}

/// One group for each victim, all at the same time: they mostly wait.
void require_each_named(int size, const Join& join, const Once& once, std::uint32_t seed) {
    std::vector<std::unique_ptr<test::RankProcesses>> groups;
    for (int victim = 0; victim < size; ++victim)
        groups.push_back(std::make_unique<test::RankProcesses>(
            size, [&, victim](const GroupTerms& terms) { return run_until_failure(terms, join, once, victim); }));
    std::mt19937 random(seed);
    for (int victim = 0; victim < size; ++victim) {
        auto& group = *groups[static_cast<std::size_t>(victim)];
        test::MeetingInFolder place(group.file(""));
        std::vector<std::string> all;
        for (int rank = 0; rank < size; ++rank) all.push_back(cat("ready/", rank));
        REQUIRE(place.collect(all, std::chrono::steady_clock::now() + 60s).has_value());
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));  // the moment is what is drawn
        ::kill(group.pid(victim), SIGSTOP);
    }
    const auto deadline = std::chrono::steady_clock::now() + 90s;
    for (int victim = 0; victim < size; ++victim) {
        auto& group = *groups[static_cast<std::size_t>(victim)];
        for (int rank = 0; rank < size; ++rank)
            while (rank != victim && !group.ended(rank) && std::chrono::steady_clock::now() < deadline)
                std::this_thread::sleep_for(1ms);
        ::kill(group.pid(victim), SIGKILL);
        const auto ends = group.join();
        for (int rank = 0; rank < size; ++rank) {
            INFO("seed " << seed << ", victim " << victim << ", rank " << rank);
            const auto& end = ends[static_cast<std::size_t>(rank)];
            if (rank != victim) CHECK((end.exited && end.code == 0));
        }
    }
}

}  // namespace

TEST_CASE("the rank that stops in an all_reduce from rank to rank is named by all, not one that waits for it") {
    static std::vector<float> values(300'000);
    require_each_named(
        5, [](const GroupTerms& terms) { return test::join_over_tcp(terms, "127.0.0.1", 0, TcpAlgorithm::ring); },
        [](int) { return all_reduce(buffer(std::span(values)), ReduceOp::sum); }, 1);
}

TEST_CASE("the rank that stops between nodes with several ranks each is named by all, wherever they wait") {
    static std::vector<float> values(200'000), all(1'200'000);
    const auto own = buffer(std::span(values));
    require_each_named(
        6,
        [](const GroupTerms& terms) {
            return test::join_over_nodes(terms, {2, 2, 2});
        },
        [own](int turn) {
            if (turn % 3 == 1) return broadcast(own, 3);
            return turn % 3 == 2 ? all_gather(own, buffer(std::span(all))) : all_reduce(own, ReduceOp::sum);
        },
        2);
}

}  // namespace muster
