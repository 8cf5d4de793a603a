// NCCL with GPUs: a world of one, and two ranks that share one GPU. Every rank is a process; the test's own never calls
// CUDA. Exits 77, with the reason, where there is no usable GPU.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace muster {

using namespace runtime;
using test::GpuMemoryAccess;
using test::join_gpu_group;
using test::on_one_gpu;
using test::RankProcesses;

namespace {

/// Before Catch2's main: a main of this program would need all of Catch2 compiled into it.
[[maybe_unused]] const bool has_gpu = [] {
    std::string why;
    const bool usable = test::gpu_count(why) > 0;
    std::printf("%s%s\n", usable ? "" : "skipped: ", why.c_str());
    if (!usable) std::exit(77);
    std::fflush(stdout);
    return true;
}();

std::string wrong_in(const Result<void>& done, bool right, const std::string& what) {
    if (!done) return done.error().context;
    return right ? "" : what + " gives wrong values";
}

/// What each kind of operation leaves in host memory, with numbers that every type holds exactly.
template <class T>
std::string every_operation(Communicator& world, int rank) {
    const auto size = static_cast<std::size_t>(world.size());
    const auto mine = static_cast<T>(rank + 1);
    const auto total = static_cast<T>(world.size() * (world.size() + 1) / 2);
    std::vector<T> values(1000, mine);
    auto done = world.run(all_reduce(buffer(std::span(values)), ReduceOp::sum));
    if (auto wrong = wrong_in(done, values == std::vector<T>(1000, total), "all_reduce"); !wrong.empty()) return wrong;
    values.assign(1000, mine);
    done = world.run(all_reduce(buffer(std::span(values)), ReduceOp::max));
    if (auto wrong = wrong_in(done, values[999] == static_cast<T>(size), "max"); !wrong.empty()) return wrong;
    std::vector<T> wide(10 * size, mine);
    std::vector<T> piece(10);
    done = world.run(reduce_scatter(buffer(std::span(wide)), buffer(std::span(piece)), ReduceOp::sum));
    if (auto wrong = wrong_in(done, piece[9] == total, "reduce_scatter"); !wrong.empty()) return wrong;
    piece.assign(10, mine);
    done = world.run(all_gather(buffer(std::span(piece)), buffer(std::span(wide))));
    if (auto wrong = wrong_in(done, wide.front() == T{1} && wide.back() == static_cast<T>(size), "all_gather");
        !wrong.empty()) {
        return wrong;
    }
    std::vector<T> other(wide.size());
    wide.assign(wide.size(), mine);
    done = world.run(all_to_all(buffer(std::span(wide)), buffer(std::span(other)), world.size()));
    if (auto wrong = wrong_in(done, other.front() == T{1} && other.back() == static_cast<T>(size), "all_to_all");
        !wrong.empty()) {
        return wrong;
    }
    done = world.run(broadcast(buffer(std::span(piece)), world.size() - 1));
    return wrong_in(done, piece[0] == static_cast<T>(size), "broadcast");
}

std::string every_type(Communicator& world, int rank) {
    for (const auto& wrong : {every_operation<float>(world, rank), every_operation<double>(world, rank),
                              every_operation<std::int32_t>(world, rank), every_operation<std::int64_t>(world, rank),
                              every_operation<std::uint8_t>(world, rank)}) {
        if (!wrong.empty()) return wrong;
    }
    return "";
}

/// Registered device memory: filled on a stream of ours, reduced behind an event, read back.
std::string in_device_memory(Communicator& world, int /*rank*/) {
    constexpr std::size_t count = 1 << 20;
    auto memory = world.allocate(count * sizeof(std::int32_t));
    if (!memory) return memory.error().context;
    auto access = GpuMemoryAccess::open(0);
    if (!access) return access.error().context;
    std::vector<std::int32_t> values(count, -1);
    auto read = (*access)->read(values.data(), memory->data(), memory->size_bytes());
    if (auto wrong = wrong_in(read, values == std::vector<std::int32_t>(count, 0), "allocate"); !wrong.empty()) {
        return wrong;
    }
    const auto filled = (*access)->begin_fill(memory->data(), 1, memory->size_bytes());
    if (!filled) return filled.error().context;
    Operation operation = all_reduce({.data = memory->data(), .count = count, .type = DataType::i32}, ReduceOp::sum);
    operation.after = *filled;
    const auto done = world.run(operation);
    read = (*access)->read(values.data(), memory->data(), memory->size_bytes());
    if (!read) return read.error().context;
    return wrong_in(done, values == std::vector<std::int32_t>(count, 0x01010101 * world.size()), "all_reduce in place");
}

/// The caller's own work may still go on in memory that it gives back.
std::string given_back_at_work(Communicator& world, int /*rank*/) {
    constexpr std::size_t size_bytes = std::size_t{64} << 20;
    auto access = GpuMemoryAccess::open(0);
    if (!access) return access.error().context;
    {
        auto memory = world.allocate(size_bytes);
        if (!memory) return memory.error().context;
        for (int i = 0; i < 100; ++i) {
            if (auto filled = (*access)->begin_fill(memory->data(), i, size_bytes); !filled) {
                return filled.error().context;
            }
        }
    }
    return wrong_in(world.run(barrier()), true, "barrier");
}

std::string weighted(Communicator& world, int rank) {
    std::vector<float> values(100, static_cast<float>(rank + 3));  // another number than the weight
    const auto done = world.run(all_reduce_weighted(buffer(std::span(values)), static_cast<float>(rank + 1)));
    const float expected = world.size() == 1 ? 3.0f : 11.0f / 3.0f;
    const bool right =
        std::all_of(values.begin(), values.end(), [&](float value) { return std::abs(value - expected) < 1e-6f; });
    return wrong_in(done, right, "weighted average");
}

std::string sum_once(Communicator& world) {
    std::vector<float> values(1 << 20, 1.0f);
    const auto done = world.run(all_reduce(buffer(std::span(values)), ReduceOp::sum));
    return wrong_in(done, values[5] == static_cast<float>(world.size()), "sum");
}

}  // namespace

TEST_CASE("a world of one runs every operation on its GPU") {
    CHECK(on_one_gpu(1, every_type) == "");
    CHECK(on_one_gpu(1, in_device_memory) == "");
    CHECK(on_one_gpu(1, given_back_at_work) == "");
    CHECK(on_one_gpu(1, weighted) == "");
}

TEST_CASE("abort ends a world of one, which a new one follows in the same process") {
    CHECK(on_one_gpu(1, [](Communicator& world, int) -> std::string {
              world.abort("on purpose");
              if (sum_once(world).empty()) return "the communicator lives";
              { const Communicator gone = std::move(world); }
              auto next = join_gpu_group({.rank = 0, .size = 1, .id = "next", .place = nullptr}, 0);
              return next ? sum_once(*next) : next.error().context;
          }) == "");
}

TEST_CASE("two ranks share one GPU, as if they were on two hosts") {
    CHECK(on_one_gpu(2, every_type) == "");
    CHECK(on_one_gpu(2, in_device_memory) == "");
    CHECK(on_one_gpu(2, weighted) == "");
}

TEST_CASE("two ranks send and receive, and split") {
    CHECK(on_one_gpu(2, [](Communicator& world, int rank) -> std::string {
              std::vector<float> out(1000, static_cast<float>(rank));
              std::vector<float> in(1000);
              auto sent = world.start(send(buffer(std::span(out)), 1 - rank));
              const auto got = world.run(receive(buffer(std::span(in)), 1 - rank));
              if (const auto done = sent.wait(); !done) return done.error().context;
              if (auto wrong = wrong_in(got, in[999] == static_cast<float>(1 - rank), "receive"); !wrong.empty()) {
                  return wrong;
              }
              auto both = world.split(0, -rank);
              return both ? sum_once(**both) : both.error().context;
          }) == "");
}

TEST_CASE("a killed rank is named, its communicator aborted, and a new world is made with a new rank") {
    RankProcesses ranks(3, [](const GroupTerms& place) {
        test::pretend_to_be_host(place.rank);
        const auto fail = [&](const std::string& why) {
            std::fprintf(stderr, "rank %d: %s\n", place.rank, why.c_str());
            return 1;
        };
        const GroupTerms first{.rank = place.rank, .size = 2, .id = "first", .place = place.place};
        const GroupTerms second{.rank = place.rank == 0 ? 0 : 1, .size = 2, .id = "second", .place = place.place};
        if (place.rank < 2) {
            auto world = join_gpu_group(first, 0, 100s);
            if (!world) return fail(world.error().context);
            if (auto wrong = sum_once(*world); !wrong.empty()) return fail(wrong);
            // Rank 1 dies in the second sum, not while rank 0 still waits for its end of the first.
            const auto limit = std::chrono::steady_clock::now() + 60s;
            if (place.rank == 1) {
                if (auto seen = place.place->collect({"summed"}, limit); !seen) return fail(seen.error().context);
                ::raise(SIGKILL);
            }
            if (auto told = place.place->publish("summed", "", limit); !told) return fail(told.error().context);
            const auto wrong = sum_once(*world);
            if (wrong.find("rank 1 (pid ") == std::string::npos) return fail("the dead rank is not named: " + wrong);
        }
        auto world = join_gpu_group(second, 0);
        if (!world) return fail(world.error().context);
        const auto wrong = sum_once(*world);
        return wrong.empty() ? 0 : fail(wrong);
    });
    const auto ends = ranks.join(std::chrono::seconds(150));
    CHECK((ends[0].exited && ends[0].code == 0));
    CHECK((!ends[1].exited && ends[1].code == SIGKILL));
    CHECK((ends[2].exited && ends[2].code == 0));
}

}  // namespace muster
