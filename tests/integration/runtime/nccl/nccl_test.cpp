// Collectives through the NCCL plugin, over the stand-ins: every rank a process, as on a real host.
#include <cmath>
#include <cstring>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/nccl/nccl_group.h"
#include "tests/support/catch.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster {

using test::NcclSetting;
using test::run_nccl_ranks;

namespace {

std::string sum_up(Communicator& world, int rank) {
    std::vector<float> values(1000, static_cast<float>(rank + 1));
    const auto done = world.run(all_reduce(buffer(std::span(values)), ReduceOp::sum));
    if (!done) return done.error().context;
    const float total = static_cast<float>(world.size() * (world.size() + 1) / 2);
    for (const float value : values) {
        if (value != total) return cat("the sum is ", value, " and not ", total);
    }
    return "";
}

bool is_refused(const Operation& operation) {
    const bool is_short = operation.type == DataType::i16 || operation.type == DataType::u16;
    return reduces(operation.kind) && (is_short || is_bitwise(operation.reduce));
}

/// Every kind, type and reduction; what NCCL lacks is refused, and the group lives on. Averages with weights and
/// premul_sum are rounded differently, so they are looked at elsewhere.
std::string every_case(Communicator& world, int rank, std::size_t count) {
    for (const auto type : test::all_types) {
        for (const auto& one : test::collective_cases(world.size(), type, count, 1)) {
            if (one.operation.reduce == ReduceOp::premul_sum) continue;
            const auto wrong =
                test::fault_in(one, rank, [&](const Operation& operation) { return world.run(operation); });
            if (is_refused(one.operation) != (wrong.find(": NCCL ") != std::string::npos))
                return cat(one.text(), " was ", is_refused(one.operation) ? "not refused: " : "refused: ", wrong);
            if (!wrong.empty() && !is_refused(one.operation)) return wrong;
        }
    }
    return "";
}

}  // namespace

TEST_CASE("ranks sum through the plugin") {
    for (const int size : {1, 2, 4}) CHECK(run_nccl_ranks(size, sum_up) == "");
}

TEST_CASE("an older library, with none of what came after 2.18, does the same") {
    const auto old = [](int) { return NcclSetting{.old_library = true}; };
    CHECK(run_nccl_ranks(2, sum_up, old) == "");
    CHECK(run_nccl_ranks(
              3, [](Communicator& world, int rank) { return every_case(world, rank, 50); }, old) == "");
}

TEST_CASE("every operation gives what one thread computes, for every type") {
    for (const int size : {2, 3}) {
        for (const std::size_t count : {0u, 1u, 1001u}) {
            CHECK(run_nccl_ranks(size, [=](Communicator& world, int rank) { return every_case(world, rank, count); }) ==
                  "");
        }
    }
}

TEST_CASE("a large world meets at several roots") {
    const auto several = [](int) {
        NcclSetting setting;
        setting.terms.ranks_per_root = 2;
        return setting;
    };
    CHECK(run_nccl_ranks(4, sum_up, several) == "");
}

TEST_CASE("an average counts each rank by its weight") {
    const auto average = [](Communicator& world, int rank) -> std::string {
        for (const auto& weights : {std::vector{1.0f, 3.0f, 0.5f}, std::vector{2.0f, 2.0f, 2.0f}}) {
            std::vector<double> values(100, rank + 1.0);
            Operation operation =
                all_reduce_weighted(buffer(std::span(values)), weights[static_cast<std::size_t>(rank)]);
            const auto done = world.run(operation);
            if (!done) return done.error().context;
            double sum = 0;
            double weight_sum = 0;
            for (std::size_t i = 0; i < weights.size(); ++i) {
                sum += static_cast<double>(weights[i]) * (static_cast<double>(i) + 1);
                weight_sum += static_cast<double>(weights[i]);
            }
            if (std::abs(values.back() - sum / weight_sum) > 1e-12) return cat("average ", values.back());
        }
        return "";
    };
    CHECK(run_nccl_ranks(3, average) == "");
}

TEST_CASE("a premul_sum multiplies each rank's elements by its factor, in the precision of the type") {
    const auto sum = [](Communicator& world, int rank) -> std::string {
        const double factors[] = {1.0 / 3, -0.7, 0};
        std::vector<double> values(99, rank + 1.0);
        const auto own = factors[rank];
        if (const auto done = world.run(all_reduce_premul(buffer(std::span(values)), own)); !done)
            return done.error().context;
        const double expected = factors[0] * 1 + factors[1] * 2 + factors[2] * 3;
        for (const auto value : values)
            if (std::abs(value - expected) > 1e-15) return cat("all_reduce: ", value);
        std::vector<double> pieces(99, rank + 1.0), piece(33);
        const auto scattered =
            world.run(reduce_scatter_premul(buffer(std::span(pieces)), buffer(std::span(piece)), own));
        if (!scattered) return scattered.error().context;
        if (std::abs(piece.back() - expected) > 1e-15) return cat("reduce_scatter: ", piece.back());
        return pieces.back() == rank + 1.0 ? "" : "the input was scaled";
    };
    CHECK(run_nccl_ranks(3, sum) == "");
}

TEST_CASE("memory of the communicator is zeroed, is reduced where it lies, and may outlive it") {
    const auto use = [](Communicator& world, int rank) -> std::string {
        auto memory = world.allocate(10'000);
        if (!memory) return memory.error().context;
        // The stand-in's device memory can be looked at.
        for (std::size_t i = 0; i < memory->size_bytes(); ++i) {
            if (memory->data()[i] != std::byte{0}) return "not zeroed";
        }
        const std::span values(reinterpret_cast<float*>(memory->data()), 2500);
        for (auto& value : values) value = static_cast<float>(rank + 1);
        const auto done = world.run(all_reduce(buffer(values), ReduceOp::sum));
        if (!done) return done.error().context;
        if (values[2499] != 3) return cat("sum ", values[2499]);
        const Memory kept = *memory;
        { const Communicator gone = std::move(world); }
        return kept.data()[0] == std::byte{0} ? "" : "the memory changed";
    };
    CHECK(run_nccl_ranks(2, use) == "");
}

TEST_CASE("a rank uses its own GPU, and makes no context on another") {
    const auto use = [](Communicator& world, int rank) -> std::string {
        auto memory = world.allocate(4000);
        if (!memory) return memory.error().context;
        // Started ones are launched by the thread of their lane, which has used no GPU before.
        std::vector<Work> works;
        const Buffer whole{.data = memory->data(), .count = 1000, .type = DataType::f32};
        for (int i = 0; i < 3; ++i) works.push_back(world.start(all_reduce(whole, ReduceOp::sum)));
        for (auto& work : works) {
            if (const auto done = work.wait(); !done) return done.error().context;
        }
        if (auto wrong = sum_up(world, rank); !wrong.empty()) return wrong;
        const unsigned contexts = test::call_stand_in<unsigned>("standin_contexts");
        return contexts == 1u << rank ? "" : cat("contexts, one bit for each GPU: ", contexts);
    };
    CHECK(run_nccl_ranks(3, use) == "");
}

TEST_CASE("a thread of the caller's uses the GPU that it used before, whatever it has asked of the runtime") {
    const auto use = [](Communicator& made, int rank) -> std::string {
        // Rank 0's thread has used none; the others have one of their own choice, which is not the rank's.
        const int chosen = rank == 0 ? 0 : rank + 4;
        const auto context = [] {
            void* now = nullptr;
            (void)test::call_stand_in<int>("cuCtxGetCurrent", &now);
            return now;
        };
        if (context() != nullptr) return "making the communicator has left a context";
        if (rank > 0) (void)test::call_stand_in<int>("cudaSetDevice", chosen);
        void* const before = context();
        std::string changes;
        const auto look_after = [&](const char* what) {
            int device = -1;
            (void)test::call_stand_in<int>("cudaGetDevice", &device);
            if (context() != before || (rank > 0 && device != chosen)) changes += cat(what, " ");
        };
        {
            auto world = std::move(made);
            std::vector<float> values(100, 1.0f);
            const auto own = buffer(std::span(values));
            if (!world.run(all_reduce(own, ReduceOp::sum))) return "no sum";
            look_after("run");
            auto memory = world.allocate(4000);
            look_after("allocate");
            const Buffer whole{.data = memory->data(), .count = 1000, .type = DataType::f32};
            if (!world.start(all_reduce(whole, ReduceOp::sum)).wait()) return "no sum on the GPU";
            auto* const queue = world.device();
            bool queued = queue->fill_zero(memory->data(), 4000) && queue->copy(memory->data(), values.data(), 400);
            const auto mark = queue->mark(0);
            queued = queued && mark && queue->wait_for(*mark) && queue->finish(30s) && queue->settle();
            if (!queued) return "the queue has failed";
            look_after("queue");
            const int peer = rank == 2 ? 0 : rank + 1;
            auto sent = world.start(send(own, peer));
            std::vector<float> received(100);
            if (!world.run(receive(buffer(std::span(received)), (rank + 2) % 3)) || !sent.wait()) return "no message";
            look_after("receive");
            auto part = world.split(0, rank);
            if (!part) return part.error().context;
            look_after("split");
            part->reset();
            look_after("a part's end");
            *memory = Memory();
            look_after("memory's end");
        }
        look_after("the end");
        return changes;
    };
    CHECK(run_nccl_ranks(3, use) == "");
}

TEST_CASE("too little memory on one GPU is told on all, and the group goes on") {
    const auto use = [](Communicator& world, int rank) -> std::string {
        const auto memory = world.allocate(10'000);
        if (memory) return "there is memory";
        if (memory.error().code != Errc::limit_exceeded) return memory.error().context;
        if (memory.error().context.find("rank 1 (pid ") == std::string::npos) return memory.error().context;
        return sum_up(world, rank);
    };
    const auto fault = [](int rank) { return NcclSetting{.fault = rank == 1 ? "no_memory" : ""}; };
    CHECK(run_nccl_ranks(2, use, fault) == "");
}

TEST_CASE("sends and receives pair up, in order, whatever the group does meanwhile") {
    const auto exchange = [](Communicator& world, int rank) -> std::string {
        // Rank 0 sends before the others come to the barrier; nothing waits for anything else.
        std::vector<std::int64_t> out{10 + rank, 20 + rank};
        std::vector<std::int64_t> in(2);
        const int right = (rank + 1) % world.size();
        const int left = (rank + world.size() - 1) % world.size();
        std::vector<Work> works;
        for (std::size_t i = 0; i < 2; ++i) {
            works.push_back(world.start(send(buffer(std::span(out).subspan(i, 1)), right)));
        }
        if (const auto met = world.run(barrier()); !met) return met.error().context;
        for (std::size_t i = 0; i < 2; ++i) {
            works.push_back(world.start(receive(buffer(std::span(in).subspan(i, 1)), left)));
        }
        for (auto& work : works) {
            if (const auto done = work.wait(); !done) return done.error().context;
        }
        return in == std::vector<std::int64_t>{10 + left, 20 + left} ? "" : "the wrong numbers came";
    };
    CHECK(run_nccl_ranks(3, exchange) == "");
}

TEST_CASE("a group splits into groups that work beside each other") {
    const auto parts = [](Communicator& world, int rank) -> std::string {
        auto half = world.split(rank == 3 ? -1 : rank % 2, -rank);
        if (!half) return half.error().context;
        if (rank == 3) return *half ? "a rank of no group has one" : sum_up(world, rank);
        if ((*half)->size() != (rank % 2 == 0 ? 2 : 1)) return cat("size ", (*half)->size());
        if (rank == 2 && (*half)->rank() != 0) return "the key does not order ranks";
        if (const auto wrong = sum_up(**half, (*half)->rank()); !wrong.empty()) return wrong;
        return sum_up(world, rank);
    };
    CHECK(run_nccl_ranks(4, parts) == "");
    CHECK(run_nccl_ranks(4, parts, [](int) { return NcclSetting{.old_library = true}; }) == "");
}

}  // namespace muster
