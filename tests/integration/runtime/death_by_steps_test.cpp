// A rank dies in each phase of each collective over shared memory: after each number of steps that it can have made.
// The others learn of it there and then, wherever they wait; who has all that it needs still ends the collective well.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/core/parts_table.h"
#include "worker_runtime/shared_memory/host_memory.h"
#include "worker_runtime/shared_memory/local_meeting.h"
#include "worker_runtime/shared_memory/shared_group.h"
#include "worker_runtime/transport/fd_watch.h"

namespace muster {

using namespace runtime;

namespace {

constexpr int size = 3;
constexpr int victim = 1;
constexpr std::size_t count = 300'000;  // more than one window of f32, of each piece too

struct Phases {
    Operation operation;
    int steps;  ///< that a rank makes in it
    bool in_memory_of_ours = false;
    bool copied = false;  ///< the data, or the first part of it, is there with the signature
};

void place_in(Operation& operation, Memory& memory, int rank) {
    std::byte* const data = memory.data();
    const bool gathers = operation.kind == OperationKind::all_gather;
    operation.input = gathers ? data + static_cast<std::size_t>(rank) * count * sizeof(float) : data;
    if (gathers || operation.kind == OperationKind::all_reduce || operation.kind == OperationKind::reduce)
        operation.output = data;
}

/// Makes so many steps of the operation, as a rank that computes nothing.
[[noreturn]] void make_steps_and_die(const GroupTerms& terms, const Phases& phases, int steps) {
    const auto limit = test::within(60s);
    const auto group = test::form_shared_group(terms);
    Operation operation = phases.operation;
    Memory memory;
    if (phases.in_memory_of_ours) {
        memory = group->allocate(size * count * sizeof(float), limit).value();
        place_in(operation, memory, terms.rank);
    }
    if (operation.parts) {  // the others read its counts
        const PartsTable table(operation, terms.rank, size);
        group->turn();
        std::memcpy(group->window(terms.rank), table.own_row(), table.row_bytes());
    }
    for (int step = 0; step < steps; ++step)
        (void)(step == 0 ? group->meet(operation, phases.copied, limit) : group->step(limit));
    ::raise(SIGKILL);
    std::abort();
}

/// 0 when the operation failed with the victim's death, 1 when only the next one did.
int survive(const GroupTerms& terms, const Phases& phases) {
    const auto names_victim = [](const Error& error) {
        return error.context.find(cat("rank ", victim, " (pid ")) != std::string::npos &&
               error.context.find("died") != std::string::npos;
    };
    auto world = test::join_shared_group(terms);
    Operation operation = phases.operation;
    Memory memory;
    if (phases.in_memory_of_ours) {
        auto made = world.allocate(size * count * sizeof(float));
        // Where the victim makes no step, it may die before this rank has left the allocation.
        if (!made) return names_victim(made.error()) ? 0 : 2;
        memory = *std::move(made);
        place_in(operation, memory, terms.rank);
    }
    const auto done = world.run(operation);
    const auto after = done ? world.run(barrier()) : done;
    if (after || !names_victim(after.error())) return 2;
    return done ? 1 : 0;
}

}  // namespace

TEST_CASE("a rank that dies is named by all others at every step of every collective in memory") {
    static std::vector<float> data(count * size), other(count * size);
    const auto large = buffer(std::span(data.data(), count));
    const auto small = buffer(std::span(data.data(), 100));
    const ConstBuffer wide(data.data(), data.size(), DataType::f32);
    const auto out = buffer(std::span(other));
    const auto piece = buffer(std::span(other.data(), count));
    const auto third = buffer(std::span(other.data(), count / size));
    const auto row = parts_in_a_row(std::vector<std::size_t>(size, count));
    for (const auto& phases : {Phases{barrier(), 1},
                               Phases{all_reduce(small, ReduceOp::sum), 1, false, true},
                               Phases{all_reduce(large, ReduceOp::sum), 5},
                               Phases{all_reduce(large, ReduceOp::avg), 2, true},
                               Phases{reduce_scatter(wide, piece, ReduceOp::max), 5},
                               Phases{reduce_scatter(large, third, ReduceOp::sum), 2, true},
                               Phases{all_gather(large, out), 2, false, true},
                               Phases{all_gather(large, out), 2, true},
                               Phases{broadcast(large, 0), 2},
                               Phases{broadcast(large, victim), 2},
                               Phases{all_to_all(wide, out, size), 4, false, true},
                               Phases{all_to_all(wide, out, size), 2, true},
                               Phases{gather(large, out, 0), 2, false, true},
                               Phases{gather(large, out, victim), 2, true},
                               Phases{scatter(wide, piece, 0), 4},
                               Phases{scatter(wide, piece, victim), 4},
                               Phases{all_to_all_uneven(data.data(), other.data(), DataType::f32, {row, row}), 5},
                               Phases{reduce(small, small, ReduceOp::sum, 0), 1, false, true},
                               Phases{reduce(large, piece, ReduceOp::sum, 0), 5},
                               Phases{reduce(large, piece, ReduceOp::min, victim), 5},
                               Phases{reduce(large, large, ReduceOp::avg, 2), 2, true}}) {
        for (int steps = 0; steps <= phases.steps; ++steps) {
            INFO(describe(phases.operation) << ", " << steps << " of " << phases.steps << " steps");
            test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
                if (terms.rank == victim) make_steps_and_die(terms, phases, steps);
                return survive(terms, phases);
            });
            const auto ends = ranks.join();
            for (const int rank : {0, 2})
                CHECK((ends[static_cast<std::size_t>(rank)].exited &&
                       ends[static_cast<std::size_t>(rank)].code == (steps == phases.steps ? 1 : 0)));
        }
    }
}

TEST_CASE("a rank that dies where all take memory is named by all others, before it, in it and after it") {
    constexpr std::size_t bytes = 100'000;
    enum Stage { before, met, taken };
    for (const int dying : {0, 1}) {  // who collects all ranks' memory, and one of the others
        for (const Stage stage : {before, met, taken}) {
            INFO("rank " << dying << ", stage " << stage);
            test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
                if (terms.rank == dying) {
                    const auto group = test::form_shared_group(terms);
                    const auto limit = test::within(60s);
                    if (stage == met) (void)group->meet({.count = bytes}, false, limit);
                    const auto memory = stage == taken ? group->allocate(bytes, limit) : Memory();
                    ::raise(SIGKILL);
                }
                auto world = test::join_shared_group(terms);
                const auto memory = world.allocate(bytes);
                const Result<void> done = memory ? world.run(barrier()) : memory.error();
                if (done || done.error().context.find(cat("rank ", dying, " (pid ")) == std::string::npos) return 2;
                return memory ? 1 : 0;
            });
            const auto ends = ranks.join();
            for (int rank = 0; rank < size; ++rank) {
                const auto& end = ends[static_cast<std::size_t>(rank)];
                if (rank != dying) CHECK((end.exited && end.code == (stage == taken ? 1 : 0)));
            }
        }
    }
}

TEST_CASE("a rank that dies while the others take the memory that they lend is named by all of them") {
    for (const int dying : {0, 1}) {  // who collects all ranks' memory, and one of the others
        INFO("rank " << dying);
        int signed_up[2], shared[2];
        REQUIRE(::pipe(signed_up) == 0);
        REQUIRE(::pipe(shared) == 0);
        const int watching = dying == 0 ? 2 : 0;
        const std::vector<int> awaited = dying == 0 ? std::vector{0} : std::vector{1, 2};
        test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
            auto* const data =
                reinterpret_cast<float*>(HostMemory::of_process().allocate(count * sizeof(float)).value());
            const auto operation = all_reduce(buffer(std::span(data, count)), ReduceOp::sum);
            const auto group = test::form_shared_group(terms);
            char byte = 0;
            if (terms.rank == dying) {  // it signs, and passes no descriptor of its own
                if (!group->announce(operation) || ::write(signed_up[1], "", 1) != 1) return 3;
                if (::read(shared[0], &byte, 1) != 1) return 3;
                ::raise(SIGKILL);
            }
            std::thread watcher;
            if (terms.rank == watching)
                watcher = std::thread([&] {
                    (void)!::read(signed_up[0], &byte, 1);
                    // The dying rank has signed, so it is awaited only by who shares.
                    while (group->awaited() != awaited) std::this_thread::sleep_for(1ms);
                    (void)!::write(shared[1], "", 1);
                });
            const auto met = group->meet(operation, false, test::within(60s));
            if (watcher.joinable()) watcher.join();
            const auto named = cat("rank ", dying, " (pid ");
            return !met && met.error().context.find(named) != std::string::npos ? 0 : 2;
        });
        const auto ends = ranks.join();
        for (int rank = 0; rank < size; ++rank) {
            const auto& end = ends[static_cast<std::size_t>(rank)];
            CHECK(end.exited == (rank != dying));
            CHECK(end.code == (rank == dying ? SIGKILL : 0));
        }
        for (const int end : {signed_up[0], signed_up[1], shared[0], shared[1]}) ::close(end);
    }
}

TEST_CASE("an abort ends the taking of memory that a rank holds up") {
    int all_there[2], over[2];
    REQUIRE(::pipe(all_there) == 0);
    REQUIRE(::pipe(over) == 0);
    const auto limit = test::within(100s);
    test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
        const auto group = test::form_shared_group(terms);
        char byte = 0;
        if (terms.rank == victim) {  // it comes, shares nothing, and stays until the others have given up
            (void)group->meet({.count = 100'000}, false, limit);
            const bool told = ::write(all_there[1], "", 1) == 1;
            return told && ::read(over[0], &byte, 1) == 1 && ::read(over[0], &byte, 1) == 1 ? 0 : 3;
        }
        std::thread aborter;
        if (terms.rank == 2)
            aborter = std::thread([&] {
                (void)!::read(all_there[0], &byte, 1);
                while (group->awaited() != std::vector{0}) std::this_thread::sleep_for(1ms);  // it shares
                group->fail(Errc::cancelled, "enough");
            });
        const auto memory = group->allocate(100'000, limit);
        if (aborter.joinable()) aborter.join();
        if (::write(over[1], "", 1) != 1 || memory || memory.error().context != "enough") return 2;
        return std::chrono::steady_clock::now() + 50s < limit.deadline ? 0 : 1;
    });
    for (const auto& end : ranks.join()) CHECK((end.exited && end.code == 0));
    for (const int end : {all_there[0], all_there[1], over[0], over[1]}) ::close(end);
}

TEST_CASE("a rank that dies before a split is named by all others") {
    test::RankProcesses ranks(size, [](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        if (terms.rank == victim) ::raise(SIGKILL);
        const auto part = world.split(terms.rank == 2 ? 1 : 0, 0);
        if (part) return 1;
        return part.error().context.find(cat("rank ", victim, " (pid ")) != std::string::npos ? 0 : 2;
    });
    const auto ends = ranks.join();
    CHECK((ends[0].exited && ends[0].code == 0));
    CHECK((ends[2].exited && ends[2].code == 0));
}

}  // namespace muster
