// What an operation is called in the error of ranks that differ in it.
#include "worker_runtime/tcp/collective_header.h"

#include <vector>

#include "tests/support/catch.h"

namespace muster::runtime {

TEST_CASE("headers that do not agree are described by different words") {
    const CollectiveHeader first{.kind = OperationKind::all_reduce, .type = DataType::f32, .count = 20, .number = 1};
    std::vector<CollectiveHeader> all(8, first);
    all[1].count = 30;
    all[2].type = DataType::f16;
    all[3].tag = 7;
    all[4].reduce = ReduceOp::avg;
    all[5].flags = CollectiveHeader::chained;
    all[6].flags = CollectiveHeader::continues;
    all[7].flags = CollectiveHeader::weighs;
    for (const auto& one : all) {
        for (const auto& other : all) {
            INFO(describe(one) << " and " << describe(other));
            CHECK(agree(one, other) == (describe(one) == describe(other)));
        }
    }
    CHECK(describe(all[7]) == "all_reduce sum f32 x 20 weighted");
}

TEST_CASE("a header comes back as it was sent, and one with numbers that nobody has is refused") {
    const CollectiveHeader sent{.kind = OperationKind::reduce_scatter,
                                .type = DataType::u64,
                                .reduce = ReduceOp::premul_sum,
                                .weight = 1.0 / 3,
                                .count = 20,
                                .number = 1};
    CollectiveHeader received;
    REQUIRE(decode(encode(sent), received));
    CHECK(agree(sent, received));
    CHECK(received.weight == sent.weight);
    auto wrong = sent;
    wrong.type = static_cast<DataType>(7);  // bool, which is a type of checkpoints only
    CHECK_FALSE(decode(encode(wrong), received));
    wrong = sent;
    wrong.reduce = static_cast<ReduceOp>(reduce_op_count);
    CHECK_FALSE(decode(encode(wrong), received));
}

}  // namespace muster::runtime
