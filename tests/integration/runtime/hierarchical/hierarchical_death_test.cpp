// Several nodes with several ranks, all on this host: what the others do when one of the ranks dies, or has no memory.
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/deaf_watch.h"
#include "tests/integration/runtime/hierarchical/node_ranks.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/own_process.h"
#include "tests/support/ranks.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::join_over_nodes;
using test::world_of;

namespace {

/// One operation of a rank, whatever it is; an error is the group's end.
using Once = std::function<Result<void>(Transport&, int rank)>;

/// Kills the first rank of the second node `delay` after all have met, while they run `once` again and again. With
/// `rank_0_waits` that rank stays away, so that the others of its node wait for it in memory, where no connection is
/// looked at.
void require_death_is_told(const std::vector<int>& nodes, const Once& once, bool rank_0_waits, Duration delay) {
    const int size = world_of(nodes);
    const int victim = nodes[0];
    std::vector<std::string> ready, told;
    for (int rank = 0; rank < size; ++rank) ready.push_back(cat("ready/", rank));
    for (int rank = 1; rank < size; ++rank)
        if (rank != victim) told.push_back(cat("told/", rank));
    test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, nodes);
        if (terms.place->publish(cat("ready/", terms.rank), "1", no_deadline).has_error()) return 3;
        if (rank_0_waits && terms.rank == 0) {
            // Until all know: to leave is another failure.
            (void)terms.place->collect(told, test::within(60s).deadline);
            return 0;
        }
        Result<void> done;
        while (done) done = once(*transport, terms.rank);
        if (terms.place->publish(cat("told/", terms.rank), "1", no_deadline).has_error()) return 3;
        const auto& text = done.error().context;
        if (text.find(cat("rank ", victim, " (pid ")) != std::string::npos) return 0;
        std::fprintf(stderr, "rank %d: %s\n", terms.rank, text.c_str());
        return 1;
    });
    test::MeetingInFolder place(ranks.file(""));
    REQUIRE(place.collect(ready, test::within(60s).deadline).has_value());
    std::this_thread::sleep_for(delay);  // the moment is what is drawn
    ::kill(ranks.pid(victim), SIGKILL);
    const auto ends = ranks.join();
    for (int rank = 0; rank < size; ++rank) {
        INFO("rank " << rank << ", rank 0 waits: " << rank_0_waits);
        const auto& end = ends[static_cast<std::size_t>(rank)];
        if (rank != victim) CHECK((end.exited && end.code == 0));
    }
}

}  // namespace

TEST_CASE("survivors of a killed rank name it, on its node and on the other, whatever they do and who waits where") {
    static std::vector<float> values(200'000), all(800'000), others(800'000);
    const auto own = buffer(std::span(values));
    const auto whole = buffer(std::span(all));
    const auto always = [](const Operation& operation) -> Once {
        return [operation](Transport& transport, int) { return carry_out(transport, operation); };
    };
    const std::vector two{2, 2}, five{5, 5};
    struct Case {
        const char* name;
        std::vector<int> nodes;
        Once once;
    };
    const Case cases[] = {
        {"all_reduce", two, always(all_reduce(own, ReduceOp::sum))},
        {"broadcast", two, always(broadcast(own, 3))},
        {"all_gather", two, always(all_gather(own, whole))},
        {"all_to_all", two, always(all_to_all(whole, buffer(std::span(others)), 4))},
        {"reduce_scatter", two, always(reduce_scatter(whole, own, ReduceOp::sum))},
        {"reduce_scatter by nodes", five,
         always(reduce_scatter(ConstBuffer(all.data(), 500'000, DataType::f32),
                               buffer(std::span(values.data(), 50'000)), ReduceOp::sum))},
        {"barrier", two, always(barrier())},
        {"messages", two,
         [&](Transport& transport, int rank) {
             Result<void> sent;
             std::thread sender([&] { sent = carry_out(transport, send(own, (rank + 1) % 4)); });
             auto got = carry_out(transport, receive(buffer(std::span(all.data(), 200'000)), (rank + 3) % 4));
             sender.join();
             return got ? sent : got;
         }},
        {"allocate", two,
         [](Transport& transport, int) -> Result<void> {
             const auto memory = transport.allocate(1 << 20, test::within(60s));
             return memory ? Result<void>() : memory.error();
         }},
    };
    int moment = 0;
    for (const auto& one : cases) {
        INFO(one.name);
        for (const bool rank_0_waits : {false, true})
            for (int i = 0; i < (one.nodes == five ? 1 : 2); ++i)
                require_death_is_told(one.nodes, one.once, rank_0_waits,
                                      std::chrono::microseconds(moment++ * 777 % 9000));
    }
}

TEST_CASE("what a rank learns between nodes ends its node's waits in memory, though no watch hears of it") {
    static std::vector<float> values(200'000), all(800'000), others(800'000);
    const auto own = buffer(std::span(values));
    const auto whole = buffer(std::span(all));
    // Rank 0 is at its deadline first, in an operation for which nobody of the other node comes.
    const auto limit = [](int rank) { return test::within(rank == 0 ? 500ms : 60s); };
    const auto by = [&](const Operation& operation) -> Once {
        return [&limit, operation](Transport& transport, int rank) { return transport.run(operation, limit(rank)); };
    };
    const std::pair<const char*, Once> cases[] = {
        {"barrier", by(barrier())},
        {"broadcast", by(broadcast(own, 3))},
        {"all_gather", by(all_gather(own, whole))},
        {"all_to_all", by(all_to_all(whole, buffer(std::span(others)), 4))},
        {"all_reduce", by(all_reduce(own, ReduceOp::sum))},
        {"message",
         [&](Transport& transport, int rank) { return transport.transfer(receive(own, rank + 2), limit(rank)); }},
        {"allocate",
         [&](Transport& transport, int rank) -> Result<void> {
             const auto memory = transport.allocate(1 << 20, limit(rank));
             return memory ? Result<void>() : memory.error();
         }},
    };
    for (const auto& [name, once] : cases) {
        test::RankProcesses ranks(4, [&once = once](const GroupTerms& terms) {
            auto watch = FdWatch::start().value();
            const auto transport = join_over_nodes(terms, {2, 2}, watch);
            if (terms.rank >= 2) {
                (void)terms.place->collect({"told/0", "told/1"}, test::within(60s).deadline);
                return 0;
            }
            const test::DeafWatch deaf(watch);
            // This one waits in memory for a message that never comes.
            Result<void> waited;
            std::thread waiting([&] {
                std::vector<float> message(10);
                waited = transport->transfer(receive(buffer(std::span(message)), 1 - terms.rank), test::within(60s));
            });
            const auto done = once(*transport, terms.rank);
            waiting.join();
            if (terms.place->publish(cat("told/", terms.rank), "1", no_deadline).has_error()) return 3;
            return !done && !waited ? 0 : 1;
        });
        const auto ends = ranks.join(std::chrono::seconds(90));
        for (int rank = 0; rank < 2; ++rank) {
            INFO(name << ", rank " << rank);
            CHECK((ends[static_cast<std::size_t>(rank)].exited && ends[static_cast<std::size_t>(rank)].code == 0));
        }
    }
}

TEST_CASE("too little memory on one rank is refused on all, and the groups live on") {
    ::signal(SIGXFSZ, SIG_IGN);
    for (const auto& nodes : {std::vector{2, 2}, {2, 1}}) {
        const int size = world_of(nodes);
        test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
            const auto transport = join_over_nodes(terms, nodes);
            // Shared memory is a file: from now on the system has 1 MiB of it for rank 1.
            const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
            if (terms.rank == 1 && ::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
            for (const std::size_t bytes : {std::size_t{4} << 20, std::size_t{1} << 50, std::size_t{4} << 20}) {
                const auto memory = transport->allocate(bytes, test::within(60s));
                const bool told = !memory && memory.error().code == Errc::limit_exceeded &&
                                  memory.error().context.find("rank ") != std::string::npos;
                if (!told)
                    std::fprintf(stderr, "rank %d: %s\n", terms.rank,
                                 memory ? "memory" : memory.error().context.c_str());
                if (!told) return 1;
            }
            std::vector<float> values(100'000, 1);
            if (!carry_out(*transport, all_reduce(buffer(std::span(values)), ReduceOp::sum))) return 2;
            if (values.back() != static_cast<float>(size)) return 2;
            return transport->allocate(100'000, test::within(60s)) && carry_out(*transport, barrier()) ? 0 : 2;
        });
        const auto ends = ranks.join();
        for (int rank = 0; rank < size; ++rank) {
            INFO(nodes.size() << " nodes, rank " << rank << " of " << size);
            CHECK((ends[static_cast<std::size_t>(rank)].exited && ends[static_cast<std::size_t>(rank)].code == 0));
        }
    }
    ::signal(SIGXFSZ, SIG_DFL);
}

TEST_CASE("groups of nodes whose peer was killed leave neither memory, descriptors nor threads with the survivor") {
    std::optional<test::Holdings> before;  // of the first group's end: what a process keeps for all is there
    std::vector<float> values(30'000);
    const auto reduced = all_reduce(buffer(std::span(values)), ReduceOp::sum);
    for (int i = 0; i < test::cycles(test::effort(50, 5)); ++i) {
        // Ranks 1 to 3 are processes, of which one on this rank's node dies or one on the other.
        test::RankProcesses peers(3, [&](const GroupTerms& given) {
            GroupTerms terms = given;
            terms.rank = given.rank + 1;
            terms.size = 4;
            const auto transport = join_over_nodes(terms, {2, 2});
            while (carry_out(*transport, reduced)) {
            }
            return 0;
        });
        {
            const auto transport = join_over_nodes(
                {.rank = 0, .size = 4, .id = "world", .place = std::make_shared<test::MeetingInFolder>(peers.file(""))},
                {2, 2});
            for (int turn = 0;; ++turn) {
                if (turn == 1 + i % 4) ::kill(peers.pid(i % 3), SIGKILL);  // one done: all have joined
                const auto done = carry_out(*transport, reduced);
                if (done) continue;
                INFO(done.error().context);
                REQUIRE(done.error().context.find(cat("rank ", i % 3 + 1, " (pid ")) != std::string::npos);
                break;
            }
        }
        if (i == 0) before.emplace();
    }
    CHECK(before->left_over_by(std::chrono::steady_clock::now() + 60s) == "");
}

}  // namespace muster
