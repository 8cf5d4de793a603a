// The kernels for GPUs, run on the host thread by thread: they have the bits of the host's own arithmetic.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/stand_ins/run_kernel.h"
#include "tests/support/catch.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/arithmetic/int8_blocks.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"
#include "worker_runtime/core/optimizer_math.h"

using namespace muster;

namespace {

using Halves = std::vector<std::uint16_t>;
using Floats = std::vector<float>;

/// Numbers of all sizes, and what lies between them.
Floats numbers(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    const float infinity = std::numeric_limits<float>::infinity();
    const float special[] = {0.0f,     -0.0f, infinity, -infinity, std::nanf(""), 65504.0f, 65519.9f,
                             65520.0f, 6e-8f, -3e-8f,   1e-40f,    3.4e38f,       1.0f,     6.1e-5f};
    Floats values(count);
    for (auto& value : values) {
        const auto bits = random();
        value = bits % 16 == 0
                    ? special[bits / 16 % std::size(special)]
                    : std::ldexp(static_cast<float>(random()) * 0x1p-31f - 1, static_cast<int>(bits / 16 % 40) - 28);
    }
    return values;
}

bool same_bits(const void* a, const void* b, std::size_t bytes) {
    return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && same_bits(a.data(), b.data(), a.size() * sizeof(T));
}

Halves narrowed(const Floats& values, DataType type) {
    Halves halves(values.size());
    runtime::convert({values.data(), values.size(), DataType::f32},
                     {.data = halves.data(), .count = halves.size(), .type = type});
    return halves;
}

constexpr DataType half_types[] = {DataType::f16, DataType::bf16};
constexpr std::size_t counts[] = {1, 255, 1024, 1025, 5000};

}  // namespace

TEST_CASE("kernels convert as the host does, and fill up with zeroes") {
    for (const auto type : half_types) {
        for (const auto count : counts) {
            const auto values = numbers(count, 1);
            Halves halves(count + 7, 0xffff);
            stand_ins::launch_here(kernels::Narrow{values.data(), halves.data(), count, halves.size(), type}, 2);
            auto expected = narrowed(values, type);
            Floats widened(count);
            stand_ins::launch_here(kernels::Widen{expected.data(), widened.data(), count, type});
            Floats back(count);
            runtime::convert({expected.data(), count, type},
                             {.data = back.data(), .count = count, .type = DataType::f32});
            CHECK(same_bits(widened, back));
            expected.resize(count + 7);
            CHECK(same_bits(halves, expected));
        }
    }
}

TEST_CASE("kernels average as reductions on the host do") {
    const auto check = []<class T>(DataType type, const std::vector<std::vector<T>>& of_ranks) {
        const auto world = static_cast<std::uint32_t>(of_ranks.size());
        const std::size_t count = of_ranks.front().size();
        std::vector<T> pieces;
        Floats weights;
        std::vector<const void*> inputs;
        for (const auto& piece : of_ranks) {
            weights.push_back(static_cast<float>(3 + inputs.size() % 3));
            pieces.insert(pieces.end(), piece.begin(), piece.end());
            inputs.push_back(piece.data());
        }
        std::vector<T> found(count);
        const std::vector<double> wide(weights.begin(), weights.end());
        const auto reciprocal = runtime::reciprocal_of(type, wide.data(), static_cast<int>(world));
        stand_ins::launch_here(kernels::Average<T>{pieces.data(), weights.data(), found.data(), count, world,
                                                   static_cast<float>(reciprocal), type});
        auto expected = of_ranks.front();
        void* const outputs[] = {expected.data()};
        if (world > 1) {
            runtime::reduce({.type = type,
                             .reduce = ReduceOp::avg,
                             .inputs = inputs.data(),
                             .input_count = static_cast<int>(world),
                             .outputs = outputs,
                             .output_count = 1,
                             .count = count,
                             .weights = wide.data()});
        }
        CHECK(same_bits(found, expected));
    };
    for (const unsigned world : {1, 2, 3, 5}) {
        std::vector<Floats> floats;
        for (unsigned rank = 0; rank < world; ++rank) floats.push_back(numbers(3000, rank + 3));
        check(DataType::f32, floats);
        for (const auto type : half_types) {
            std::vector<Halves> halves;
            for (const auto& each : floats) halves.push_back(narrowed(each, type));
            check(type, halves);
        }
    }
}

TEST_CASE("kernels scale as the host does") {
    const auto values = numbers(3000, 7);
    auto floats = values;
    auto expected = values;
    stand_ins::launch_here(kernels::ScaleFloats{floats.data(), floats.size(), static_cast<float>(0.3)});
    runtime::scale({.data = expected.data(), .count = expected.size(), .type = DataType::f32}, 0.3);
    CHECK(same_bits(floats, expected));
    std::vector<double> doubles(values.begin(), values.end());
    auto expected_doubles = doubles;
    stand_ins::launch_here(kernels::ScaleDoubles{doubles.data(), doubles.size(), 0.3});
    runtime::scale({.data = expected_doubles.data(), .count = doubles.size(), .type = DataType::f64}, 0.3);
    CHECK(same_bits(doubles, expected_doubles));
    for (const auto type : half_types) {
        auto halves = narrowed(values, type);
        auto expected_halves = halves;
        stand_ins::launch_here(kernels::ScaleHalves{halves.data(), halves.size(), static_cast<float>(0.3), type});
        runtime::scale({.data = expected_halves.data(), .count = halves.size(), .type = type}, 0.3);
        CHECK(same_bits(halves, expected_halves));
    }
}

TEST_CASE("a kernel finds the parameters that are not finite, and no others") {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<std::uint64_t> begins{0, 304, 320, 1344};
    const std::vector<std::int32_t> parameters{3, 0, 2, 1};
    const auto found_in = [&](std::size_t at, float value, DataType type) {
        Floats values(1400, 65504);
        if (at < values.size()) values[at] = value;
        const std::vector<double> doubles(values.begin(), values.end());
        const auto halves = narrowed(values, type == DataType::bf16 ? type : DataType::f16);
        const void* const data = type == DataType::f32   ? static_cast<const void*>(values.data())
                                 : type == DataType::f64 ? static_cast<const void*>(doubles.data())
                                                         : halves.data();
        std::vector<std::uint32_t> found(4);
        stand_ins::launch_here(
            kernels::FindNonFinite{data, values.size(), begins.data(), parameters.data(), found.data(), 4, 4, type});
        return found;
    };
    using Found = std::vector<std::uint32_t>;
    for (const auto type : {DataType::f32, DataType::f64, DataType::f16, DataType::bf16}) {
        CHECK(found_in(2000, 0, type) == Found{0, 0, 0, 0});
        CHECK(found_in(0, infinity, type) == Found{0, 0, 0, 1});
        CHECK(found_in(303, -infinity, type) == Found{0, 0, 0, 1});
        CHECK(found_in(304, std::nanf(""), type) == Found{1, 0, 0, 0});
        CHECK(found_in(1343, infinity, type) == Found{0, 0, 1, 0});
        CHECK(found_in(1399, infinity, type) == Found{0, 1, 0, 0});
    }
}

TEST_CASE("kernels sum squares in f64, and what was there before") {
    for (const std::size_t count : {1, 256, 4097, 100000}) {
        Floats values(count);
        double expected = 5;
        for (std::size_t i = 0; i < count; ++i) {
            values[i] = static_cast<float>(i % 7) * 0.125f;
            expected += double{values[i]} * values[i];  // exact, in whatever order
        }
        std::vector<double> sums(kernels::SquareSum::items_max);
        sums.front() = 5;
        stand_ins::launch_here(kernels::SquareSum{values.data(), count, sums.data(), DataType::f32});
        double total = 0;
        stand_ins::launch_here(kernels::Total{sums.data(), sums.size(), &total});
        CHECK(total == expected);
        std::vector<double> again(sums.size());
        again.front() = 5;
        stand_ins::launch_here(kernels::SquareSum{values.data(), count, again.data(), DataType::f32}, 3);
        CHECK(again == sums);
    }
}

TEST_CASE("kernels update as optimizers on the host do") {
    const OptimizerRule rules[] = {Sgd{.learning_rate = 0.1},
                                   Sgd{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1},
                                   Adam{.weight_decay = 0.1}, AdamW{}};
    constexpr std::size_t count = 2000;
    for (const auto& rule : rules) {
        for (const auto type : {DataType::f32, DataType::f16, DataType::bf16}) {
            Floats values(count, 0.5f);
            Floats first(runtime::moment_count(rule) > 0 ? count : 0);
            Floats second(runtime::moment_count(rule) > 1 ? count : 0);
            auto expected = values;
            auto expected_first = first;
            auto expected_second = second;
            for (std::uint64_t number = 1; number <= 3; ++number) {
                Floats wide(count);
                for (std::size_t i = 0; i < count; ++i) wide[i] = std::sin(static_cast<float>(i * number));
                const auto halves = narrowed(wide, type == DataType::f32 ? DataType::f16 : type);
                const void* const gradient =
                    type == DataType::f32 ? static_cast<const void*>(wide.data()) : halves.data();
                if (type != DataType::f32) {
                    runtime::convert({halves.data(), count, type},
                                     {.data = wide.data(), .count = count, .type = DataType::f32});
                }
                runtime::update(rule, number, wide, expected, expected_first, expected_second);
                if (const auto* const sgd = std::get_if<Sgd>(&rule)) {
                    stand_ins::launch_here(kernels::SgdUpdate{gradient, values.data(),
                                                              first.empty() ? nullptr : first.data(), count,
                                                              runtime::numbers_of(*sgd, number), type});
                } else {
                    const auto* const adam = std::get_if<Adam>(&rule);
                    const auto sizes = adam != nullptr ? runtime::numbers_of(*adam, number)
                                                       : runtime::numbers_of(std::get<AdamW>(rule), number);
                    stand_ins::launch_here(
                        kernels::AdamUpdate{gradient, values.data(), first.data(), second.data(), count, sizes, type});
                }
            }
            CHECK(same_bits(values, expected));
            CHECK(same_bits(first, expected_first));
            CHECK(same_bits(second, expected_second));
        }
    }
}

TEST_CASE("kernels make 8-bit numbers of a block as the host does, NaNs and all") {
    constexpr std::size_t count = runtime::int8_block;
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float odd : {1.0f, 2.9f, 5.3f, 7.7f, 0.0f, 1e-31f, 1e-30f, 1e-38f, 3e38f, infinity, std::nanf("")}) {
        for (const std::size_t given : {count, std::size_t{300}}) {
            Floats gradients(given);
            for (std::size_t i = 0; i < given; ++i) {
                gradients[i] = std::abs(odd) < 1e-20f ? 0.0f : std::cos(static_cast<float>(i));
            }
            gradients[given / 2] = odd;
            const Floats residual(given, std::abs(odd) < 1e-20f ? 0.0f : 0.01f);
            gradients[3] = -residual[3];  // zero, with what was lost
            auto lost = residual;
            const std::size_t bytes = runtime::int8_piece_bytes(count);
            std::vector<std::byte> piece(bytes, std::byte{0x55});
            const auto values = gradients;
            auto sums = gradients;
            for (std::size_t i = 0; i < given; ++i) sums[i] += residual[i];
            stand_ins::launch_here(
                kernels::Int8Encode{gradients.data(), lost.data(), given, {piece.data(), count, bytes}, 1, 2.0f});
            CHECK(same_bits(gradients, sums));
            std::vector<std::int8_t> codes(count);
            auto expected_lost = residual;
            const float scale = runtime::quantise(values.data(), 1, given, expected_lost.data(), codes.data());
            const float head[] = {2.0f, scale};
            CHECK(same_bits(piece.data(), head, sizeof head));
            CHECK(same_bits(piece.data() + sizeof head, codes.data(), count));
            CHECK(same_bits(lost, expected_lost));
        }
    }
}

TEST_CASE("kernels average 8-bit numbers of all ranks as the host does, and decode them, also where sums overflow") {
    constexpr std::size_t block = runtime::int8_block;
    constexpr std::size_t elements = 3 * block;
    const std::size_t bytes = runtime::int8_piece_bytes(elements);
    // The last rank's samples make its factor infinite in the third block; the second block of the first is NaN.
    for (const float samples : {1.0f, 7.0f, 1e5f}) {
        std::vector<std::byte> incoming(2 * bytes), outgoing(2 * bytes);
        const kernels::Int8Pieces in{incoming.data(), elements, bytes};
        const kernels::Int8Pieces out{outgoing.data(), elements, bytes};
        std::mt19937 random(21);
        for (std::uint64_t rank = 0; rank < 2; ++rank) {
            *in.samples(rank) = rank == 0 ? 3.0f : samples;
            for (std::size_t b = 0; b < 3; ++b) in.scales(rank)[b] = b == 2 ? 1e34f : 0.01f * static_cast<float>(b + 1);
            for (std::size_t i = 0; i < elements; ++i) {
                in.codes(rank)[i] = static_cast<std::int8_t>(i % 5 == 0 ? 0 : static_cast<int>(random() % 255) - 127);
            }
        }
        in.scales(0)[1] = std::nanf("");
        Floats lost(elements, 0.001f);
        auto expected_lost = lost;
        stand_ins::launch_here(kernels::Int8Average{in, out, lost.data(), 2, 1});
        CHECK(*out.samples(1) == 3 + samples);
        for (std::size_t b = 0; b < 3; ++b) {
            Floats sums(block);
            for (std::uint64_t rank = 0; rank < 2; ++rank) {
                const float factor = *in.samples(rank) * in.scales(rank)[b];
                runtime::add_scaled(sums.data(), in.codes(rank) + b * block, block, factor);
            }
            std::vector<std::int8_t> codes(block);
            const float scale = runtime::quantise(sums.data(), 1 / (3 + samples), block,
                                                  expected_lost.data() + b * block, codes.data());
            CHECK(std::isfinite(scale) == (b == 0 || (b == 2 && samples < 1e4f)));
            CHECK(same_bits(out.scales(1) + b, &scale, sizeof scale));
            CHECK(same_bits(out.codes(1) + b * block, codes.data(), block));
        }
        CHECK(same_bits(lost, expected_lost));
        constexpr std::size_t given = elements - 100;
        Floats decoded(given), expected(given);
        stand_ins::launch_here(
            kernels::Int8Decode{{outgoing.data() + bytes, elements, bytes}, decoded.data(), given, 1});
        for (std::size_t b = 0; b < 3; ++b) {
            runtime::dequantise(out.codes(1) + b * block, std::min(block, given - b * block), out.scales(1)[b],
                                expected.data() + b * block);
        }
        CHECK(same_bits(decoded, expected));
    }
}
