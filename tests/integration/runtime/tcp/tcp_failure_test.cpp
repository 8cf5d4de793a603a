// TCP end to end, ranks as threads: what goes wrong, and in which words all ranks learn of it.
#include <poll.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/own_process.h"
#include "tests/support/ranks.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_parts.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::Findings;
using test::join_over_tcp;
using test::run_as_threads;
using test::within;

TEST_CASE("ranks that do different things both learn what the other does, before data is touched") {
    struct Case {
        Operation first;
        Operation second;
        std::vector<std::string> words;
    };
    // What rank 1 has is seen when it gets into the memory of rank 0, and the other way round.
    std::vector<float> memory(900'000, 1.0f), other_memory(900'000, 2.0f);
    std::vector<double> doubles(900'000, 2.0);
    const auto of = [&](std::size_t count) { return buffer(std::span(memory.data(), count)); };
    const auto from = [&](std::size_t count) { return buffer(std::span(other_memory.data(), count)); };
    const auto from_f64 = [&](std::size_t count) { return buffer(std::span(doubles.data(), count)); };
    std::vector<std::int32_t> numbers(10, 3);
    std::vector<std::uint16_t> shorts(10, 5);
    const auto whole = [&](std::size_t count) { return buffer(std::span(numbers.data(), count)); };
    const auto part = [&](std::size_t count) { return buffer(std::span(shorts.data(), count)); };
    const auto tagged = [](Operation operation, std::uint32_t tag) {
        operation.tag = tag;
        return operation;
    };
    const auto sum = ReduceOp::sum;
    const std::vector<Case> cases{
        {all_reduce(of(10), sum), all_reduce(from(11), sum), {"f32 x 10", "f32 x 11"}},
        {all_reduce(of(900'000), sum), all_reduce(from(5), sum), {"f32 x 900000", "f32 x 5"}},
        {all_reduce(of(10), sum), all_reduce(from(10), ReduceOp::max), {"all_reduce sum", "all_reduce max"}},
        {all_reduce(of(10), ReduceOp::product), all_reduce_premul(from(10), 0.5), {"product f32", "premul_sum f32"}},
        {all_reduce(whole(10), ReduceOp::band), all_reduce(part(10), ReduceOp::bxor), {"band i32", "bxor u16"}},
        {all_reduce(of(800'000), sum), all_reduce(from_f64(800'000), sum), {"f32 x 800000", "f64 x 800000"}},
        {broadcast(of(800'000), 0), broadcast(from(800'000), 1), {"from rank 0", "from rank 1"}},
        {barrier(), all_reduce(from(10), sum), {"runs barrier", "runs all_reduce"}},
        {all_reduce(of(10), sum), reduce_scatter(from(20), from(10), sum), {"all_reduce", "reduce_scatter"}},
        {all_gather(of(5), of(10)), all_to_all(from(10), from(10), 2), {"all_gather", "all_to_all"}},
        {all_gather(of(400'000), of(800'000)),
         all_to_all(from(800'000), from(800'000), 2),
         {"all_gather", "all_to_all"}},
        {broadcast(of(5), 0), broadcast(from(6), 0), {"f32 x 5", "f32 x 6"}},
        {gather(of(400'000), of(800'000), 0), gather(from(400'000), from(800'000), 1), {"to rank 0", "to rank 1"}},
        {gather(of(5), of(10), 0), scatter(from(10), from(5), 0), {"gather", "scatter"}},
        {reduce(of(900'000), of(900'000), sum, 0),
         reduce(from(900'000), from(900'000), sum, 1),
         {"to rank 0", "reduce"}},
        {tagged(barrier(), 7), tagged(barrier(), 8), {"tagged 7", "tagged 8"}},
        {send(of(10), 1), receive(from(11), 0), {"sends f32 x 10", "receives f32 x 11"}},
        {send(of(700'000), 1), receive(from_f64(700'000), 0), {"sends f32 x 700000", "receives f64 x 700000"}},
        {tagged(send(of(1), 1), 3), tagged(receive(from(1), 0), 4), {"tagged 3", "tagged 4"}},
    };
    for (const auto& one : cases) {
        Findings findings;
        run_as_threads(2, [&](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            auto words = one.words;
            words.insert(words.end(), {"rank 0 (pid ", "rank 1 (pid ", "communicator world"});
            findings.expect_error(carry_out(*world, terms.rank == 0 ? one.first : one.second), words);
        });
        CHECK(findings.text() == "");
        CHECK(memory == std::vector<float>(memory.size(), 1.0f));
        CHECK(other_memory == std::vector<float>(other_memory.size(), 2.0f));
        CHECK(doubles == std::vector<double>(doubles.size(), 2.0));
    }
    CHECK(numbers == std::vector<std::int32_t>(10, 3));
    CHECK(shorts == std::vector<std::uint16_t>(10, 5));
}

TEST_CASE("ranks that contradict each other about what one sends are told both numbers, before data is touched") {
    // Three ranks: the third is not concerned, and is told the same. A large group has algorithms of its own.
    for (const int size : {3, whole_mesh_ranks_max + 1}) {
        Findings findings;
        run_as_threads(size, [&](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            const auto row = parts_in_a_row(std::vector<std::size_t>(static_cast<std::size_t>(size), 30));
            Parts parts{row, row};
            if (terms.rank == 1) parts.expected[0].count = 29;
            std::vector<float> input(30 * row.size(), 1.0f), output(input.size(), -1.0f);
            findings.expect_error(
                carry_out(*world, all_to_all_uneven(input.data(), output.data(), DataType::f32, parts)),
                {"rank 0 (pid ", " sends 30 elements of f32 to rank 1 (pid ", "which expects 29"});
            findings.expect(output == std::vector<float>(output.size(), -1.0f), "data came");
            findings.expect(carry_out(*world, barrier()), "the group goes on");
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("a rank of several that differs is named on all of them") {
    Findings findings;
    run_as_threads(5, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        std::vector<float> data(terms.rank == 3 ? 30u : 20u);
        findings.expect_error(carry_out(*world, all_reduce(buffer(std::span(data)), ReduceOp::sum)),
                              {"rank 3 (pid ", "f32 x 30", "f32 x 20"});
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a rank that does not come is named at the deadline, and those with more time hear of it") {
    Findings findings;
    std::atomic<int> failed = 0;
    run_as_threads(3, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        if (terms.rank != 2) {
            const auto done = world->run(barrier(), within(terms.rank == 0 ? Duration(50ms) : Duration(3600s)));
            findings.expect_error(done, {"operation 1 (barrier)", "rank 2 (pid ", "did not reach it"});
            ++failed;
        }
        while (failed < 2) std::this_thread::sleep_for(1ms);
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a rank that comes after the others have given up fails in that very operation") {
    std::vector<float> memory(1'500'000);
    const auto of = [&](int rank, std::size_t count) {
        return buffer(std::span(memory).subspan(static_cast<std::size_t>(rank) * 500'000, count));
    };
    const std::vector<std::function<Operation(int)>> operations{
        [](int) { return barrier(); },
        [&](int rank) { return all_reduce(of(rank, 10), ReduceOp::sum); },
        [&](int rank) { return all_reduce(of(rank, 500'000), ReduceOp::sum); },
        [&](int rank) { return broadcast(of(rank, 10), 0); },
    };
    for (const auto& operation : operations) {
        Findings findings;
        std::atomic<int> failed = 0;
        run_as_threads(3, [&](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            while (terms.rank == 2 && failed < 2) std::this_thread::sleep_for(1ms);
            const auto limit = terms.rank == 2 ? Duration(60s) : Duration(20ms);
            const auto done = world->run(operation(terms.rank), within(limit));
            findings.expect(!done && done.error().context.find("rank 2 (pid ") != std::string::npos,
                            done ? cat("rank ", terms.rank, " passed") : done.error().context);
            ++failed;
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("a rank that comes while the others still look for who is late fails in that very operation") {
    Findings findings;
    std::atomic<int> waiting = 0;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto parts = connect_tcp(terms, {.addresses = {"127.0.0.1"}}).value();
        std::vector<pollfd> news;
        for (const int one : parts.group->partners()) news.push_back({parts.group->control(one).get(), POLLIN, 0});
        const auto world = tcp_transport_over(std::move(parts), TcpAlgorithm::automatic);
        const auto limit = within(terms.rank == 2 ? Duration(60s) : Duration(3s));
        ++waiting;
        if (terms.rank == 2) {
            while (waiting < 3) std::this_thread::sleep_for(1ms);
            // The moment is what counts: one of them has told rank 2 that it gives up, which rank 2 has not read yet.
            findings.expect(::poll(news.data(), news.size(), 60'000) > 0, "nobody gives up");
        }
        findings.expect_error(world->run(barrier(), limit), {"operation 1 (barrier)", "rank 2 (pid ", "timed out"});
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a message that nobody takes, or sends, ends at the deadline") {
    Findings findings;
    for (const bool sends : {true, false}) {
        std::atomic<bool> failed = false;
        run_as_threads(2, [&](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            std::vector<float> data(1000);
            const auto all = buffer(std::span(data));
            if (terms.rank == 0) {
                const auto done = world->transfer(sends ? send(all, 1) : receive(all, 1), within(50ms));
                findings.expect_error(done, {sends ? "send f32 x 1000" : "receive f32 x 1000", "rank 1 (pid"});
                failed = true;
            }
            while (!failed) std::this_thread::sleep_for(1ms);
        });
    }
    CHECK(findings.text() == "");
}

TEST_CASE("an abort ends what all ranks are waiting in, at once, and says why") {
    Findings findings;
    run_as_threads(4, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        std::vector<float> data(1000);
        std::thread other;
        std::atomic<bool> waiting = false;
        if (terms.rank == 1) {
            other = std::thread([&] {
                while (!waiting) std::this_thread::yield();
                world->abort("the loss is NaN");
            });
        }
        // Ranks 0 and 2 wait for a message, 1 and 3 in a collective that the others do not join.
        waiting = true;
        const auto done = terms.rank % 2 == 0 ? world->transfer(receive(buffer(std::span(data)), 3), within(3600s))
                                              : world->run(barrier(), within(3600s));
        findings.expect_error(done, {"rank 1 (pid ", "the loss is NaN"});
        if (other.joinable()) other.join();
    });
    CHECK(findings.text() == "");
}

TEST_CASE("an abort wakes the own threads while all others are busy elsewhere") {
    Findings findings;
    std::atomic<bool> over = false;
    run_as_threads(2, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        if (terms.rank == 0) {
            while (!over) std::this_thread::sleep_for(1ms);
            return;
        }
        std::vector<float> data(10);
        Result<void> message;
        std::thread receiver([&] { message = world->transfer(receive(buffer(std::span(data)), 0), within(3600s)); });
        std::thread stopper([&] { world->abort("enough"); });
        findings.expect_error(world->run(barrier(), within(3600s)), {"rank 1 (pid ", "aborted: enough"});
        receiver.join();
        findings.expect_error(message, {"aborted: enough"});
        stopper.join();
        over = true;
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a rank that leaves in order is no failure until somebody needs it") {
    Findings findings;
    std::atomic<bool> gone = false;
    std::atomic<int> received = 0;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto world = join_over_tcp(terms);
        std::vector<float> data(100'000, 1.0f);
        findings.expect(carry_out(*world, all_reduce(buffer(std::span(data)), ReduceOp::sum)), "all_reduce");
        if (terms.rank == 2) {
            world.reset();
            gone = true;
            return;
        }
        while (!gone) std::this_thread::sleep_for(1ms);
        // The two that are left still reach each other.
        const auto done = terms.rank == 0 ? carry_out(*world, send(buffer(std::span(data)), 1))
                                          : carry_out(*world, receive(buffer(std::span(data)), 0));
        findings.expect(done, "a message between those who stayed");
        // Who has sent may fail in the barrier while the other still receives, and would end that too.
        ++received;
        while (received < 2) std::this_thread::sleep_for(1ms);
        findings.expect_error(carry_out(*world, barrier()), {"rank 2 (pid ", "closed communicator world"});
    });
    CHECK(findings.text() == "");
}

TEST_CASE("groups leave neither descriptors nor threads behind, in order or by failure") {
    const auto cycle = [](bool fails) {
        run_as_threads(3, [fails](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            std::vector<float> data(10);
            if (fails && terms.rank == 1) world->abort("enough");
            (void)carry_out(*world, all_reduce(buffer(std::span(data)), ReduceOp::sum));
        });
    };
    cycle(false);
    const auto descriptors = test::open_descriptors();
    const auto threads = test::threads_alive();
    for (int i = 0; i < 100; ++i) {
        cycle(false);
        cycle(true);
    }
    // A thread that was joined may still be on the kernel's list.
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while ((test::open_descriptors() > descriptors || test::threads_alive() > threads) &&
           std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(1ms);
    CHECK(test::open_descriptors() <= descriptors);
    CHECK(test::threads_alive() <= threads);
}

}  // namespace muster
