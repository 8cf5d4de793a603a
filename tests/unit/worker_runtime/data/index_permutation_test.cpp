#include "worker_runtime/data/index_permutation.h"

#include <array>
#include <cmath>
#include <vector>

#include "tests/support/catch.h"
#include "worker_runtime/data/mixing.h"

using namespace muster::runtime;

TEST_CASE("every number comes exactly once, and its place is found again") {
    for (std::uint64_t count = 1; count <= 2'000; ++count) {
        const IndexPermutation permutation(count, 11, count % 5);
        std::vector<bool> seen(count);
        for (std::uint64_t place = 0; place < count; ++place) {
            const auto index = permutation.at(place);
            if (index >= count || seen[index] || permutation.place_of(index) != place) {
                FAIL("count " << count << ": place " << place << " has " << index);
            }
            seen[index] = true;
        }
    }
}

TEST_CASE("data of up to 2^63 samples has an order") {
    const auto most = std::uint64_t{1} << 63;
    for (const auto count : {most, most - 1, most / 2 + 1, (std::uint64_t{1} << 32) + 1, std::uint64_t{1} << 33}) {
        const IndexPermutation permutation(count, 3, 9);
        std::uint64_t random = 1;
        for (const std::uint64_t edge : {std::uint64_t{0}, std::uint64_t{1}, count / 2, count - 1}) {
            CHECK(permutation.place_of(permutation.at(edge)) == edge);
            CHECK(permutation.at(permutation.place_of(edge)) == edge);
        }
        for (int i = 0; i < 1'000; ++i) {
            const auto place = next_random(random) % count;
            const auto index = permutation.at(place);
            REQUIRE(index < count);
            REQUIRE(permutation.place_of(index) == place);
        }
    }
}

TEST_CASE("other seeds and other epochs have other orders") {
    const IndexPermutation first(1'000, 1, 0), seed(1'000, 2, 0), epoch(1'000, 1, 1), swapped(1'000, 0, 1);
    int seeds = 0, epochs = 0, swaps = 0;
    for (std::uint64_t place = 0; place < 1'000; ++place) {
        seeds += first.at(place) == seed.at(place) ? 1 : 0;
        epochs += first.at(place) == epoch.at(place) ? 1 : 0;
        swaps += first.at(place) == swapped.at(place) ? 1 : 0;
    }
    // One on average where they have nothing to do with each other.
    CHECK(seeds < 12);
    CHECK(epochs < 12);
    CHECK(swaps < 12);
}

// Chi-square over a grid of (part of the place, part of the index): 255 degrees of freedom have a mean of 255 and a
// deviation of 23 where numbers are spread evenly; a permutation's are a little more even.
TEST_CASE("numbers of every part of the data go to every part of the order alike") {
    constexpr std::uint64_t parts = 16, count = 100'003;
    for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
        const IndexPermutation permutation(count, seed, 0);
        std::array<double, parts * parts> seen{};
        for (std::uint64_t place = 0; place < count; ++place) {
            seen[place * parts / count * parts + permutation.at(place) * parts / count] += 1;
        }
        const double expected = static_cast<double>(count) / (parts * parts);
        double distance = 0;
        for (const double tally : seen) distance += (tally - expected) * (tally - expected) / expected;
        CHECK(distance > 100);  // far too even is not random either
        CHECK(distance < 400);
    }
}

TEST_CASE("neighbours do not stay neighbours") {
    constexpr std::uint64_t count = 50'000;
    const IndexPermutation permutation(count, 0, 0);
    double apart = 0;
    int steps_of_one = 0;
    for (std::uint64_t place = 0; place + 1 < count; ++place) {
        const auto here = static_cast<double>(permutation.at(place)),
                   next = static_cast<double>(permutation.at(place + 1));
        apart += std::abs(here - next) / (count - 1);
        steps_of_one += std::abs(here - next) == 1 ? 1 : 0;
    }
    CHECK(std::abs(apart - count / 3.0) < count / 100.0);  // two random numbers of 0..n are n/3 apart on average
    CHECK(steps_of_one < 20);                              // two are expected
}

// For few samples, all orders: 24 orders of 4 in 24,000 epochs, so 1,000 of each, deviation 31.
TEST_CASE("few samples come in every order about as often") {
    std::array<int, 256> seen{};
    for (std::uint64_t epoch = 0; epoch < 24'000; ++epoch) {
        const IndexPermutation permutation(4, 5, epoch);
        std::uint64_t code = 0;
        for (std::uint64_t place = 0; place < 4; ++place) code = code * 4 + permutation.at(place);
        ++seen[code];
    }
    int orders = 0;
    for (const int tally : seen) {
        if (tally == 0) continue;
        ++orders;
        CHECK(tally > 700);
        CHECK(tally < 1'300);
    }
    CHECK(orders == 24);
}
