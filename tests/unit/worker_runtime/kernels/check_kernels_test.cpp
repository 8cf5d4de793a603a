// The kernels that test a GPU, on the host: right products have the checksum that the factors promise, and one wrong
// bit changes it.
#include <numeric>
#include <vector>

#include "tests/stand_ins/run_kernel.h"
#include "tests/support/catch.h"
#include "worker_runtime/gpu_test/known_product.h"

using namespace muster::kernels;
using namespace muster::runtime;
using muster::stand_ins::launch_here;

namespace {

template <class Kernel, class Element>
std::uint64_t checksum_of(const KnownProduct<Element>& known) {
    Kernel kernel{.a = known.a.data(), .b = known.b.data(), .sums = nullptr, .size = known.size, .depth = known.depth};
    std::vector<std::uint64_t> sums(kernel.items());
    kernel.sums = sums.data();
    launch_here(kernel, 1);
    return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

}  // namespace

TEST_CASE("the checksum of a product is known from its factors") {
    const auto halves = known_halves(256, 42);
    const auto floats = known_floats(256, 42);
    CHECK(halves.checksum == floats.checksum);
    CHECK(checksum_of<CheckHalves>(halves) == halves.checksum);
    CHECK(checksum_of<CheckFloats>(floats) == floats.checksum);
    CHECK(known_halves(256, 43).checksum != halves.checksum);
}

TEST_CASE("one wrong bit of a factor changes the checksum") {
    auto halves = known_halves(256, 7);
    halves.a[12345] ^= 0x0400;
    CHECK(checksum_of<CheckHalves>(halves) != halves.checksum);
    auto floats = known_floats(256, 7);
    floats.b[54321] += 1;
    CHECK(checksum_of<CheckFloats>(floats) != floats.checksum);
}

TEST_CASE("words that changed in memory are counted") {
    std::vector<std::uint64_t> memory(100'000);
    for (const std::uint64_t flip : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        launch_here(PatternWrite{.data = memory.data(), .count = memory.size(), .seed = 5, .flip = flip});
        PatternCompare compare{
            .data = memory.data(), .count = memory.size(), .seed = 5, .flip = flip, .wrong = nullptr};
        std::vector<std::uint64_t> wrong(compare.items());
        compare.wrong = wrong.data();
        const auto found = [&] {
            launch_here(compare);
            return std::accumulate(wrong.begin(), wrong.end(), std::uint64_t{0});
        };
        CHECK(found() == 0);
        memory[0] ^= 1;
        memory[77'777] ^= std::uint64_t{1} << 63;
        memory.back() = 0;
        CHECK(found() == 3);
    }
}
