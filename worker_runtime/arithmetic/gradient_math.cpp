#include "worker_runtime/arithmetic/gradient_math.h"

#include <cstring>

#include "rendezvous/base/check.h"
#include "worker_runtime/arithmetic/half_formats.h"

namespace muster::runtime {

namespace {

/// True if all bits of `exponent` are set in any word.
template <class Word>
bool any_with_all_bits(const Word* words, std::size_t count, Word exponent) {
    // Blocks keep the inner loop free of branches and allow an early end.
    constexpr std::size_t block = 4096;
    for (std::size_t at = 0; at < count; at += block) {
        const std::size_t end = at + block < count ? at + block : count;
        Word found = 0;
        for (std::size_t i = at; i < end; ++i) found = static_cast<Word>(found | ((words[i] & exponent) == exponent));
        if (found != 0) return true;
    }
    return false;
}

constexpr std::size_t lane_count = 8;

/// Eight running sums on every processor, whatever its registers hold, so that the order of additions is the same.
struct Lanes {
    double sums[lane_count] = {};

    template <class T, class Widen>
    void add(const T* elements, std::size_t count, Widen widen) {
        std::size_t i = 0;
        for (; i + lane_count <= count; i += lane_count) {
            for (std::size_t lane = 0; lane < lane_count; ++lane) {
                const double x = widen(elements[i + lane]);
                sums[lane] += x * x;
            }
        }
        for (; i < count; ++i) {
            const double x = widen(elements[i]);
            sums[i % lane_count] += x * x;
        }
    }

    [[nodiscard]] double total() const {
        double sum = 0;
        for (const double each : sums) sum += each;
        return sum;
    }
};

}  // namespace

void set_zero(const Buffer& buffer) {
    if (buffer.count > 0) std::memset(buffer.data, 0, buffer.size_bytes());
}

bool has_non_finite(const ConstBuffer& buffer) {
    const auto count = buffer.count;
    switch (buffer.type) {
        case DataType::f32:
            return any_with_all_bits(static_cast<const std::uint32_t*>(buffer.data), count, std::uint32_t{0x7f800000});
        case DataType::f64:
            return any_with_all_bits(static_cast<const std::uint64_t*>(buffer.data), count, std::uint64_t{0x7ff} << 52);
        case DataType::f16:
            return any_with_all_bits(static_cast<const std::uint16_t*>(buffer.data), count, std::uint16_t{0x7c00});
        case DataType::bf16:
            return any_with_all_bits(static_cast<const std::uint16_t*>(buffer.data), count, std::uint16_t{0x7f80});
        default: return false;
    }
}

double sum_of_squares(const ConstBuffer& buffer) {
    Lanes lanes;
    switch (buffer.type) {
        case DataType::f32:
            lanes.add(static_cast<const float*>(buffer.data), buffer.count, [](float x) { return double{x}; });
            break;
        case DataType::f64:
            lanes.add(static_cast<const double*>(buffer.data), buffer.count, [](double x) { return x; });
            break;
        case DataType::f16:
            lanes.add(static_cast<const std::uint16_t*>(buffer.data), buffer.count,
                      [](std::uint16_t x) { return double{f32_of_f16(x)}; });
            break;
        case DataType::bf16:
            lanes.add(static_cast<const std::uint16_t*>(buffer.data), buffer.count,
                      [](std::uint16_t x) { return double{f32_of_bf16(x)}; });
            break;
        default: MUSTER_CHECK(false, name(buffer.type));
    }
    return lanes.total();
}

void scale(const Buffer& buffer, double factor) {
    const auto narrow_factor = static_cast<float>(factor);
    auto* const halves = static_cast<std::uint16_t*>(buffer.data);
    switch (buffer.type) {
        case DataType::f32:
            for (std::size_t i = 0; i < buffer.count; ++i) static_cast<float*>(buffer.data)[i] *= narrow_factor;
            break;
        case DataType::f64:
            for (std::size_t i = 0; i < buffer.count; ++i) static_cast<double*>(buffer.data)[i] *= factor;
            break;
        case DataType::f16:
            for (std::size_t i = 0; i < buffer.count; ++i)
                halves[i] = f16_of_f32(f32_of_f16(halves[i]) * narrow_factor);
            break;
        case DataType::bf16:
            for (std::size_t i = 0; i < buffer.count; ++i) {
                halves[i] = bf16_of_f32(f32_of_bf16(halves[i]) * narrow_factor);
            }
            break;
        default: MUSTER_CHECK(false, name(buffer.type));
    }
}

}  // namespace muster::runtime
