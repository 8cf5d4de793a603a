#include "worker_runtime/core/parts_table.h"

#include <cstring>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

namespace muster {

using runtime::PartsTable;

namespace {

Operation uneven(std::vector<std::size_t> sent, std::vector<std::size_t> expected) {
    return all_to_all_uneven(nullptr, nullptr, DataType::f32, {parts_in_a_row(sent), parts_in_a_row(expected)});
}

/// Rank 0's table of two ranks.
PartsTable table_of(const Operation& own, const Operation& other) {
    PartsTable table(own, 0, 2);
    const PartsTable theirs(other, 1, 2);
    std::memcpy(table.row(1), theirs.own_row(), theirs.row_bytes());
    return table;
}

std::string who(int rank) {
    return cat("rank ", rank);
}

}  // namespace

TEST_CASE("ranks that agree about every part do not contradict each other") {
    const auto table = table_of(uneven({1, 7}, {1, 0}), uneven({0, 3}, {7, 3}));
    CHECK(table.contradiction(who).empty());
    CHECK(table.largest() == 7);
    CHECK_FALSE(table.is_even());
}

TEST_CASE("a contradiction names both ranks and both numbers, in either direction") {
    CHECK(table_of(uneven({1, 7}, {1, 0}), uneven({0, 3}, {6, 3})).contradiction(who) ==
          "all_to_all_uneven: rank 0 sends 7 elements of f32 to rank 1, which expects 6; make both counts equal");
    CHECK(table_of(uneven({1, 7}, {1, 2}), uneven({0, 3}, {7, 3})).contradiction(who) ==
          "all_to_all_uneven: rank 1 sends 0 elements of f32 to rank 0, which expects 2; make both counts equal");
    CHECK(table_of(uneven({1, 0}, {2, 0}), uneven({0, 0}, {0, 0})).contradiction(who) ==
          "all_to_all_uneven: rank 0 sends 1 elements of f32 to rank 0, which expects 2; make both counts equal");
}

TEST_CASE("a number that no rank can have meant is found, and whose it is") {
    const auto good = uneven({1, 7}, {1, 0});
    CHECK(table_of(good, good).damaged() == -1);
    for (const std::int64_t wrong : {std::int64_t{-1}, (std::int64_t{1} << 54) + 1, std::int64_t{1} << 61}) {
        for (const int place : {1, 3}) {
            auto table = table_of(good, good);
            table.row(1)[place] = wrong;
            CHECK(table.damaged() == 1);
        }
    }
}

TEST_CASE("what a rank keeps is no part that travels") {
    CHECK(table_of(uneven({9, 2}, {9, 3}), uneven({3, 8}, {2, 8})).largest() == 3);
}

TEST_CASE("parts are even where all have one size, and lie in a row on all ranks") {
    const auto even = uneven({5, 5}, {5, 5});
    CHECK(table_of(even, even).is_even());
    CHECK_FALSE(table_of(even, uneven({5, 5}, {5, 4})).is_even());
    auto apart = *even.parts;
    apart.expected[1].offset = 6;
    CHECK_FALSE(table_of(even, all_to_all_uneven(nullptr, nullptr, DataType::f32, apart)).is_even());
}

TEST_CASE("what moves, as parts of a rank's buffers") {
    const auto counts = [](const std::vector<Part>& parts) {
        std::string text;
        for (const auto& part : parts) text += cat(part.count, "@", part.offset, " ");
        return text;
    };
    const ConstBuffer input(nullptr, 4, DataType::u8);
    const Buffer output{.data = nullptr, .count = 4, .type = DataType::u8};
    const auto root = parts_of(gather(input, output, 1), 1, 3);
    CHECK(counts(root.sent) == "0@0 4@0 0@0 ");
    CHECK(counts(root.expected) == "4@0 4@4 4@8 ");
    CHECK(counts(parts_of(gather(input, output, 1), 0, 3).expected) == "0@0 0@0 0@0 ");
    CHECK(counts(parts_of(scatter(input, output, 2), 2, 3).sent) == "4@0 4@4 4@8 ");
    CHECK(counts(parts_of(scatter(input, output, 2), 0, 3).sent) == "0@0 0@0 0@0 ");
    CHECK(counts(parts_of(scatter(input, output, 2), 0, 3).expected) == "0@0 0@0 4@0 ");
}

TEST_CASE("operations with a root name it") {
    const ConstBuffer input(nullptr, 4, DataType::bf16);
    const Buffer output{.data = nullptr, .count = 4, .type = DataType::bf16};
    CHECK(describe(gather(input, output, 1)) == "gather bf16 x 4 to rank 1");
    CHECK(describe(scatter(input, output, 0)) == "scatter bf16 x 4 from rank 0");
    CHECK(describe(reduce(input, output, ReduceOp::max, 2)) == "reduce max bf16 x 4 to rank 2");
    CHECK(describe(uneven({}, {})) == "all_to_all_uneven f32");
}

}  // namespace muster
