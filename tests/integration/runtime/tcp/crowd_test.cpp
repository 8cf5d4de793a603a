// Hundreds of ranks over TCP, each a process: they form with few connections, and compute what few ranks compute.
#include <atomic>
#include <cstdio>
#include <numeric>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/tcp/crowd.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::join_over_tcp;

namespace {

/// Runs `body` in processes that meet in common memory. All must return 0 within `limit`.
void run_as_processes(int size, const std::function<int(const GroupTerms&)>& body, std::chrono::seconds limit) {
    const auto place = std::make_shared<test::MeetingInPages>(static_cast<std::size_t>(size) + 1);
    test::RankProcesses ranks(size, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        terms.place = place;
        return body(terms);
    });
    const auto ends = ranks.join(limit);
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
        INFO("rank " << rank << " of " << size << ": code or signal " << ends[rank].code);
        REQUIRE((ends[rank].exited && ends[rank].code == 0));
    }
}

int complain(int rank, const std::string& what) {
    std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
    return 1;
}

double seconds_since(Instant began) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

TEST_CASE("128 ranks form with 39 connections each, and every collective equals the serial result") {
    constexpr int size = 128;
    constexpr ReduceOp sums[] = {ReduceOp::sum, ReduceOp::avg};
    std::vector<test::CollectiveCase> cases;
    for (const std::size_t count : {1u, 130u, 3'001u})
        for (auto& one : test::collective_cases(size, DataType::f32, count, static_cast<std::uint32_t>(count), sums))
            cases.push_back(std::move(one));
    run_as_processes(
        size,
        [&](const GroupTerms& terms) {
            const auto began = std::chrono::steady_clock::now();
            const auto world = join_over_tcp(terms);
            if (!carry_out(*world, barrier())) return complain(terms.rank, "the first barrier");
            if (terms.rank == 0) std::fprintf(stderr, "128 ranks: %.2f s until all have met\n", seconds_since(began));
            // 13 partners: control and two lanes.
            if (const int count = test::tcp_connections(); count != 39)
                return complain(terms.rank, cat(count, " connections"));
            for (const auto& one : cases) {
                const auto fault = test::fault_in(
                    one, terms.rank, [&](const Operation& operation) { return carry_out(*world, operation); });
                if (!fault.empty()) return complain(terms.rank, fault);
            }
            // No collective has made a connection.
            if (const int count = test::tcp_connections(); count != 39)
                return complain(terms.rank, cat(count, " connections in the end"));
            return carry_out(*world, barrier()) ? 0 : complain(terms.rank, "the last barrier");
        },
        std::chrono::seconds(250));
}

namespace {

/// What is wrong with one of 1,024 ranks that are connected.
std::string fault_of(Transport& world, int rank) {
    constexpr int size = 1024;
    const std::int64_t sum_of_ranks = std::int64_t{size} * (size - 1) / 2;
    for (const std::size_t count : {5u, 4'000u}) {
        std::vector<std::int64_t> data(count, rank);
        if (!carry_out(world, all_reduce(buffer(std::span(data)), ReduceOp::sum))) return "all_reduce";
        if (data != std::vector<std::int64_t>(count, sum_of_ranks)) return "the sums";
    }
    std::vector<std::int64_t> own{rank}, all(size), to(size), from(size);
    if (!carry_out(world, all_gather(buffer(std::span(own)), buffer(std::span(all))))) return "all_gather";
    std::iota(to.begin(), to.end(), std::int64_t{rank} * size);
    if (!carry_out(world, all_to_all(buffer(std::span(to)), buffer(std::span(from)), size))) return "all_to_all";
    for (int other = 0; other < size; ++other) {
        const auto at = static_cast<std::size_t>(other);
        if (all[at] != other || from[at] != std::int64_t{other} * size + rank) return cat("what rank ", other, " sent");
    }
    if (!carry_out(world, broadcast(buffer(std::span(own)), 1000)) || own[0] != 1000) return "broadcast";
    return carry_out(world, barrier()) ? "" : "the last barrier";
}

}  // namespace

TEST_CASE("1,024 ranks form with 57 connections each, and sum, gather and exchange") {
    // Ranks are threads of 64 processes, because not every machine lets a user have a thousand processes.
    constexpr int size = 1024;
    constexpr int here = 16;
    const auto place = std::make_shared<test::MeetingInPages>(std::size_t{size} + 1);
    test::RankProcesses processes(size / here, [&](const GroupTerms& given) {
        const auto began = std::chrono::steady_clock::now();
        const auto watch = FdWatch::start().value();
        std::atomic<int> faults = 0, met = 0;
        std::vector<std::thread> threads;
        for (int i = 0; i < here; ++i) {
            const int rank = given.rank * here + i;
            threads.emplace_back([&, rank] {
                const GroupTerms terms{.rank = rank, .size = size, .id = "world", .place = place};
                const auto world = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}, .watch = watch}).value();
                if (!carry_out(*world, barrier())) faults += complain(rank, "the first barrier");
                if (rank == 0) std::fprintf(stderr, "1,024 ranks: %.2f s until all met\n", seconds_since(began));
                if (++met == here && test::tcp_connections() != here * 57)
                    faults += complain(rank, cat(test::tcp_connections(), " connections of the process"));
                const auto fault = fault_of(*world, rank);
                if (!fault.empty()) faults += complain(rank, fault);
                if (rank == 0) std::fprintf(stderr, "1,024 ranks: %.2f s in all\n", seconds_since(began));
            });
        }
        for (auto& thread : threads) thread.join();
        return faults > 0 ? 1 : 0;
    });
    const auto ends = processes.join(std::chrono::seconds(300));
    for (std::size_t i = 0; i < ends.size(); ++i) {
        INFO("process " << i << ": code or signal " << ends[i].code);
        REQUIRE((ends[i].exited && ends[i].code == 0));
    }
}

}  // namespace muster
