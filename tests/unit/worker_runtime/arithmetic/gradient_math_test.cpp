// Formats, norms and blocks: the arithmetic of the gradient engine.
#include "worker_runtime/arithmetic/gradient_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "worker_runtime/arithmetic/half_formats.h"
#include "worker_runtime/arithmetic/int8_blocks.h"
#include "worker_runtime/arithmetic/thin_matrix.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// What a 16-bit number stands for, by the definition of its format.
double meaning(std::uint16_t x, int exponent_bits, int fraction_bits) {
    const double sign = x >> 15 == 0 ? 1 : -1;
    const int exponent = (x >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = x & ((1 << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    if (exponent == (1 << exponent_bits) - 1) {
        return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::quiet_NaN();
    }
    const double scaled = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
    return sign * std::ldexp(scaled, std::max(exponent, 1) - bias - fraction_bits);
}

struct Format {
    DataType type;
    int exponent_bits;
    int fraction_bits;
    float (*widen)(std::uint16_t);
    std::uint16_t (*narrow)(float);
};
const Format formats[] = {
    {DataType::f16, 5, 10, [](std::uint16_t x) { return f32_of_f16(x); }, [](float x) { return f16_of_f32(x); }},
    {DataType::bf16, 8, 7, [](std::uint16_t x) { return f32_of_bf16(x); }, [](float x) { return bf16_of_f32(x); }}};

bool same(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

Buffer of(std::vector<float>& values) {
    return buffer(std::span<float>(values));
}
Buffer of(std::vector<std::uint16_t>& values, DataType type) {
    return {.data = values.data(), .count = values.size(), .type = type};
}

}  // namespace

TEST_CASE("every 16-bit number has the value that its format says, and comes back as it was") {
    for (const auto& format : formats) {
        std::vector<std::uint16_t> all(65536);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
        std::vector<float> wide(all.size());
        convert(of(all, format.type), of(wide));
        std::vector<std::uint16_t> back(all.size());
        convert(of(wide), of(back, format.type));
        for (std::size_t i = 0; i < all.size(); ++i) {
            const double expected = meaning(all[i], format.exponent_bits, format.fraction_bits);
            if (!same(wide[i], expected) || !same(format.widen(all[i]), expected)) FAIL("number " << i);
            if (!std::isnan(expected) && (back[i] != all[i] || format.narrow(wide[i]) != all[i])) FAIL("number " << i);
            if (std::isnan(expected) && !std::isnan(meaning(back[i], format.exponent_bits, format.fraction_bits))) {
                FAIL("number " << i << " is no NaN any more");
            }
        }
    }
}

TEST_CASE("between two neighbouring 16-bit numbers the nearer one is taken, and the even one in the middle") {
    for (const auto& format : formats) {
        const auto last = static_cast<std::uint32_t>(((1 << format.exponent_bits) - 1) << format.fraction_bits);
        std::vector<float> inputs;
        std::vector<std::uint16_t> expected;
        for (std::uint32_t low = 0; low + 1 <= last; ++low) {
            const double a = meaning(static_cast<std::uint16_t>(low), format.exponent_bits, format.fraction_bits);
            // The number after the largest would be as far away again, were it not infinity.
            const double b =
                low + 1 == last
                    ? 2 * a - meaning(static_cast<std::uint16_t>(low - 1), format.exponent_bits, format.fraction_bits)
                    : meaning(static_cast<std::uint16_t>(low + 1), format.exponent_bits, format.fraction_bits);
            const auto middle = static_cast<float>((a + b) / 2);
            if (static_cast<double>(middle) != (a + b) / 2) continue;  // bf16's smallest: f32 has nothing in between
            const auto even = static_cast<std::uint16_t>(low % 2 == 0 ? low : low + 1);
            inputs.insert(inputs.end(), {std::nextafter(middle, 0.0f), middle,
                                         std::nextafter(middle, std::numeric_limits<float>::infinity())});
            expected.insert(expected.end(),
                            {static_cast<std::uint16_t>(low), even, static_cast<std::uint16_t>(low + 1)});
        }
        std::vector<std::uint16_t> result(inputs.size());
        convert(of(inputs), of(result, format.type));
        CHECK(result == expected);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            if (format.narrow(inputs[i]) != expected[i]) FAIL(inputs[i]);
            if (format.narrow(-inputs[i]) != (expected[i] | 0x8000)) FAIL(-inputs[i]);
        }
    }
}

TEST_CASE("a number that is not finite is found wherever it stands, in every type") {
    for (const std::size_t count : {1, 7, 4096, 4097, 9000}) {
        for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
            std::vector<float> f32(count, std::numeric_limits<float>::max());
            CHECK_FALSE(has_non_finite(of(f32)));
            f32[at] = -std::numeric_limits<float>::infinity();
            CHECK(has_non_finite(of(f32)));
            f32[at] = std::numeric_limits<float>::quiet_NaN();
            CHECK(has_non_finite(of(f32)));
            std::vector<double> f64(count, -std::numeric_limits<double>::max());
            CHECK_FALSE(has_non_finite(buffer(std::span<double>(f64))));
            f64[at] = std::numeric_limits<double>::infinity();
            CHECK(has_non_finite(buffer(std::span<double>(f64))));
            std::vector<std::uint16_t> f16(count, 0x7bff);
            CHECK_FALSE(has_non_finite(of(f16, DataType::f16)));
            CHECK_FALSE(has_non_finite(of(f16, DataType::bf16)));
            f16[at] = 0xfc00;
            CHECK(has_non_finite(of(f16, DataType::f16)));
            f16[at] = 0x7f80;
            CHECK(has_non_finite(of(f16, DataType::bf16)));
        }
    }
}

TEST_CASE("squares are summed and elements scaled in every type") {
    std::vector<float> f32(1001, 3);
    CHECK(sum_of_squares(of(f32)) == 9009);
    scale(of(f32), 0.5);
    CHECK(f32 == std::vector<float>(1001, 1.5f));
    std::vector<double> f64(13, 1e200);
    scale(buffer(std::span<double>(f64)), 1e-200);
    CHECK(std::abs(sum_of_squares(buffer(std::span<double>(f64))) - 13) < 1e-9);
    for (const auto& format : formats) {
        std::vector<std::uint16_t> halves(9, format.narrow(4));
        CHECK(sum_of_squares(of(halves, format.type)) == 144);
        scale(of(halves, format.type), 0.25);
        CHECK(halves == std::vector<std::uint16_t>(9, format.narrow(1)));
    }
}

TEST_CASE("codes and what was lost are the value, and codes are within half a scale") {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const float size : {1e-20f, 1.0f, 1e30f}) {
        std::vector<float> values(int8_block);
        for (auto& each : values) each = size * normal(random);
        std::vector<std::int8_t> codes(values.size());
        std::vector<float> lost(values.size());
        std::vector<float> decoded(values.size());
        const float scale_of_block = quantise(values.data(), 1, values.size(), lost.data(), codes.data());
        dequantise(codes.data(), codes.size(), scale_of_block, decoded.data());
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (std::abs(lost[i]) > 0.5001f * scale_of_block) FAIL("lost " << lost[i] << " of " << values[i]);
            if (std::abs(decoded[i] + lost[i] - values[i]) > 1e-6f * std::abs(values[i])) FAIL(values[i]);
        }
        std::vector<float> sums(values.size(), 1);
        add_scaled(sums.data(), codes.data(), codes.size(), 2);
        CHECK(sums[3] == 1 + 2 * static_cast<float>(codes[3]));
    }
}

TEST_CASE("a block of zeros or of numbers too small to send keeps them, one that is not finite says so") {
    std::vector<float> values{0, 1e-35f, -1e-40f};
    std::vector<std::int8_t> codes(3, 9);
    std::vector<float> lost(3, 0);
    CHECK(quantise(values.data(), 1, 3, lost.data(), codes.data()) == 0);
    CHECK(codes == std::vector<std::int8_t>(3, 0));
    CHECK(lost == values);
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        values[1] = bad;
        const float none = quantise(values.data(), 1, 3, lost.data(), codes.data());
        CHECK(std::isnan(none));
        CHECK(lost == std::vector<float>(3, 0));
        dequantise(codes.data(), 3, none, values.data());
        CHECK(std::isnan(values[1]));
        CHECK(std::isnan(values[2]));
        CHECK(values[0] == 0);
    }
}

TEST_CASE("thin matrices: a matrix of rank two is found by one step of the power method, and given back exactly") {
    constexpr std::size_t rows = 37;
    constexpr std::size_t inner = 19;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::size_t count) {
        std::vector<float> values(count);
        for (auto& each : values) each = normal(random);
        return values;
    };
    const auto left = fill(rows * 2);
    const auto right = fill(inner * 2);
    std::vector<float> matrix(rows * inner);
    multiply_out(left.data(), rows, right.data(), inner, 2, matrix.data());
    auto q = fill(inner * 3);
    std::vector<float> p(rows * 3);
    multiply(matrix.data(), rows, inner, q.data(), 3, p.data());
    make_orthonormal(p.data(), rows, 3);
    for (std::size_t a = 0; a < 3; ++a) {
        for (std::size_t b = 0; b < 3; ++b) {
            double dot = 0;
            for (std::size_t i = 0; i < rows; ++i) dot += double{p[a * rows + i]} * p[b * rows + i];
            // The third column depends on the other two, and is zero rather than noise.
            CHECK(std::abs(dot - (a == b && a < 2 ? 1 : 0)) < 1e-5);
        }
    }
    multiply_transposed(matrix.data(), rows, inner, p.data(), 3, q.data());
    std::vector<float> again(matrix.size());
    multiply_out(p.data(), rows, q.data(), inner, 3, again.data());
    for (std::size_t i = 0; i < matrix.size(); ++i) {
        if (std::abs(again[i] - matrix[i]) > 1e-4f) FAIL("element " << i);
    }
}
