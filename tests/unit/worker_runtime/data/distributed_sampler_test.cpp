#include "muster/distributed_sampler.h"

#include <algorithm>
#include <numeric>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "worker_runtime/data/torch_permutation.h"

using namespace muster;
using namespace muster::runtime;

namespace {

using Indices = std::vector<std::uint64_t>;

/// Over the numbers, not their bytes (FNV-1a's arithmetic).
std::uint64_t fingerprint_of(const std::vector<std::uint32_t>& order) {
    std::uint64_t hash = 14695981039346656037U;
    for (const auto value : order) hash = (hash ^ value) * 1099511628211U;
    return hash;
}

std::string refusal(const DistributedSamplerOptions& options) {
    const auto made = DistributedSampler::make(options);
    return made ? "no error" : made.error().context;
}

Indices pass(const DistributedSamplerOptions& options) {
    auto sampler = DistributedSampler::make(options);
    REQUIRE(sampler.has_value());
    auto indices = sampler->indices();
    CHECK(indices.size() == sampler->size());
    return indices;
}

}  // namespace

// The golden numbers are torch 2.13's: randperm(n, generator=Generator().manual_seed(seed)).
TEST_CASE("the order is torch's") {
    CHECK(torch_permutation(0, 1).empty());
    CHECK(torch_permutation(1, 1) == std::vector<std::uint32_t>{0});
    CHECK(torch_permutation(10, 0) == std::vector<std::uint32_t>{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
    CHECK(torch_permutation(10, (std::uint64_t{1} << 32) + 5) ==
          std::vector<std::uint32_t>{1, 4, 9, 6, 3, 5, 0, 2, 8, 7});
    CHECK(fingerprint_of(torch_permutation(1'000, 3)) == 0x4c9e0f98ceb47215U);
    CHECK(fingerprint_of(torch_permutation(1'281'167, 3)) == 0xe082871040c155fcU);
}

// With as few samples torch does not take this way; these are from its algorithm in Python over torch's 64-bit draws,
// torch.empty(n, dtype=torch.int64).random_(-2**63, None, generator=g), taken as unsigned.
TEST_CASE("the order of very many samples is made from torch's 64-bit draws") {
    CHECK(shuffled_inside_out(12, 7) == std::vector<std::uint32_t>{1, 8, 7, 3, 4, 5, 9, 6, 2, 10, 0, 11});
    CHECK(fingerprint_of(shuffled_inside_out(1'000, 7)) == 0x35137e33f06a59efU);
}

// Hidden: takes 0.9 GB and 15 s. The golden numbers are torch 2.13's for the first count of 64-bit draws.
TEST_CASE("the first count of 64-bit draws is torch's", "[.large]") {
    const auto order = torch_permutation(214'748'364, 7);
    CHECK(order[0] == 93'268'064);
    CHECK(order.back() == 187'216'702);
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < order.size(); ++i) sum += order[i] * (2 * i + 1);
    CHECK(sum == 14'379'412'190'638'614'908U);
    CHECK(shuffled_forward(214'748'363, 7)[2] == 128'500'308);
}

TEST_CASE("ranks take every world-th place, and the front of the order comes again where places are left") {
    const auto order = pass({.sample_count = 10, .seed = 4});
    for (int rank = 0; rank < 4; ++rank) {
        const auto own = pass({.sample_count = 10, .world = 4, .rank = rank, .seed = 4});
        const auto first = static_cast<std::size_t>(rank);
        CHECK(own == Indices{order[first], order[first + 4], order[(first + 8) % 10]});
    }
}

TEST_CASE("more ranks than samples get the order again and again, or nothing") {
    for (int rank = 0; rank < 7; ++rank) {
        const auto place = static_cast<std::uint64_t>(rank);
        CHECK(pass({.sample_count = 2, .world = 7, .rank = rank, .shuffle = Shuffle::off}) == Indices{place % 2});
        CHECK(pass({.sample_count = 2, .world = 7, .rank = rank, .last = LastSamples::drop}).empty());
    }
    CHECK(pass({.sample_count = 0, .world = 3}).empty());
}

TEST_CASE("without shuffling the data may be of any size") {
    const auto sampler =
        DistributedSampler::make({.sample_count = std::uint64_t{1} << 62, .world = 8, .shuffle = Shuffle::off});
    REQUIRE(sampler.has_value());
    CHECK(sampler->size() == std::uint64_t{1} << 59);
}

TEST_CASE("a second pass without set_epoch() is found out, and one with it is not") {
    auto careless = *DistributedSampler::make({.sample_count = 100});
    const auto once = careless.indices();
    CHECK_FALSE(careless.order_repeated());
    CHECK(careless.indices() == once);
    CHECK(careless.order_repeated());

    auto careful = *DistributedSampler::make({.sample_count = 100});
    const auto first = careful.indices();
    careful.set_epoch(1);
    const auto second = careful.indices();
    CHECK(second != first);
    CHECK_FALSE(careful.order_repeated());
    CHECK(second == pass({.sample_count = 100, .seed = 1}));  // as torch has it: seed + epoch

    auto in_order = *DistributedSampler::make({.sample_count = 5, .shuffle = Shuffle::off});
    in_order.indices();
    in_order.indices();
    CHECK_FALSE(in_order.order_repeated());
}

TEST_CASE("a world and a rank that cannot be are refused by name") {
    CHECK(refusal({.sample_count = 5, .world = 0}) == "a world of 0; it must be at least 1");
    CHECK(refusal({.sample_count = 5, .world = 2, .rank = 2}) == "rank 2 is not in a world of 2");
    CHECK(refusal({.sample_count = 5, .world = 2, .rank = -1}) == "rank -1 is not in a world of 2");
    CHECK_THAT(refusal({.sample_count = std::uint64_t{1} << 32}), Catch::Contains("too many for torch's order"));
}
