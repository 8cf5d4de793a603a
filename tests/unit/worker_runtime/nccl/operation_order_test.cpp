// What ranks tell each other about the operations that they have run.
#include "worker_runtime/nccl/operation_order.h"
#include "muster/operation.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

namespace muster::runtime {

namespace {

OperationSignature sum_of(std::uint64_t count, DataType type = DataType::f32) {
    return {.kind = OperationKind::all_reduce, .type = type, .count = count};
}

/// `count` operations, of which number `odd` is another.
OperationOrder order_of_length(std::uint64_t count, std::uint64_t odd = 0) {
    OperationOrder order;
    for (std::uint64_t number = 1; number <= count; ++number) {
        order.add(sum_of(number % 7, number == odd ? DataType::i32 : DataType::f32));
    }
    return order;
}

/// As it goes over the store.
std::optional<OrderDispute> compared(const OperationOrder& own, const OperationOrder& theirs) {
    const auto marks = decode_marks(encode(theirs.marks()));
    REQUIRE(marks.has_value());
    REQUIRE((*marks == theirs.marks()));
    return own.compare(*marks);
}

}  // namespace

TEST_CASE("ranks that ran the same agree, however far one is ahead") {
    for (const std::uint64_t own : {0u, 1u, 63u, 64u, 5000u, 200'000u}) {
        for (const std::uint64_t theirs : {0u, 1u, 2u, 17u, 64u, 100u, 4096u, 7000u, 200'001u}) {
            INFO(own << " and " << theirs << " operations");
            CHECK(!compared(order_of_length(own), order_of_length(theirs)).has_value());
        }
    }
}

TEST_CASE("one operation that differs is found where both have come by, and named") {
    for (const std::uint64_t odd : {1u, 2u, 60u, 64u, 65u, 900u, 1000u}) {
        for (const std::uint64_t ahead : {0u, 1u, 40u, 900u}) {
            INFO("operation " << odd << ", " << ahead << " ahead");
            const auto own = order_of_length(1000, odd);
            const auto theirs = order_of_length(1000 + ahead);
            const auto dispute = compared(own, theirs);
            // Whoever is too far ahead has no mark near the end in common, and is compared again later.
            const bool covered = ahead < 16 || odd <= 960;
            REQUIRE(dispute.has_value() == covered);
            if (!covered) continue;
            CHECK((dispute->agreed < odd && odd <= dispute->differs && dispute->differs - dispute->agreed <= 64));
            const auto difference = theirs.find(own.dispute_text(*dispute));
            REQUIRE(difference.has_value());
            CHECK(difference->number == odd);
            CHECK(difference->theirs == cat("all_reduce sum i32 x ", odd % 7));
            CHECK(difference->own == cat("all_reduce sum f32 x ", odd % 7));
        }
    }
}

TEST_CASE("a difference long ago is found, though nobody knows its name any more") {
    const auto own = order_of_length(100'000, 10);
    const auto theirs = order_of_length(90'000);
    const auto dispute = compared(own, theirs);
    REQUIRE(dispute.has_value());
    CHECK(dispute->agreed == 0);
    CHECK(own.dispute_text(*dispute) == "");
    CHECK(!theirs.find("").has_value());
}

TEST_CASE("all that ranks must mean alike is part of a signature, and of its words") {
    const OperationSignature base = sum_of(5);
    std::vector<OperationSignature> others(8, base);
    others[0].kind = OperationKind::all_gather;
    others[1].type = DataType::i32;
    others[2].reduce = ReduceOp::max;
    others[3].weighted = true;
    others[4].kind = OperationKind::broadcast;
    others[4].peer = 1;
    others[5].tag = 7;
    others[6].count = 6;
    others[7].act = OperationSignature::Act::allocate;
    for (const auto& other : others) {
        OperationOrder one;
        OperationOrder two;
        one.add(base);
        two.add(other);
        const auto dispute = compared(one, two);
        REQUIRE(dispute.has_value());
        const auto difference = one.find(two.dispute_text(*dispute));
        REQUIRE(difference.has_value());
        CHECK(difference->theirs == description_of(other));
    }
    auto peers = others[4];
    peers.peer = 2;
    CHECK(description_of(peers) != description_of(others[4]));
    OperationOrder from_one;
    OperationOrder from_two;
    from_one.add(others[4]);
    from_two.add(peers);
    CHECK(compared(from_one, from_two).has_value());
    CHECK(description_of(others[5]) == "all_reduce sum f32 x 5 tagged 7");
    CHECK(description_of({.act = OperationSignature::Act::split}) == "split");
}

TEST_CASE("what is no list of marks is refused") {
    for (const auto* const text : {"x", "1", "1:", ":1", "1:2 ", "1:2:3", "-1:2"})
        CHECK(decode_marks(text).has_error());
    CHECK(decode_marks("")->empty());
}

}  // namespace muster::runtime
