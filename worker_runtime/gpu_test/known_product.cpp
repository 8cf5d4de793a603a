#include "worker_runtime/gpu_test/known_product.h"

#include <array>

#include "worker_runtime/arithmetic/half_formats.h"
#include "worker_runtime/kernels/check_kernels.h"

namespace muster::runtime {

namespace {

constexpr int largest = 15;

/// Element `k` of a line, a row of A or a column of B.
int element_of(std::uint64_t seed, std::uint32_t line, std::uint32_t k) {
    const auto random = kernels::mixed(seed + (std::uint64_t{line} << 32 | k));
    return static_cast<int>(random % (2 * largest + 1)) - largest;
}

/// Writes a matrix line by line, and returns its weighted sum for each k. `put(place of the element, element)`.
template <class Weight, class Put>
std::vector<std::uint64_t> fill(std::uint32_t size, std::uint64_t seed, Weight weight, Put put) {
    std::vector<std::uint64_t> sums(size);
    for (std::uint32_t line = 0; line < size; ++line) {
        const auto factor = weight(line);
        for (std::uint32_t k = 0; k < size; ++k) {
            const int element = element_of(seed, line, k);
            sums[k] += factor * static_cast<std::uint64_t>(std::int64_t{element});
            put(line, k, element);
        }
    }
    return sums;
}

template <class Element, class PutA, class PutB>
KnownProduct<Element> known_product(std::uint32_t size, std::uint64_t seed, PutA put_a, PutB put_b) {
    KnownProduct<Element> product{.size = size, .depth = size, .a = {}, .b = {}};
    product.a.resize(std::size_t{size} * size);
    product.b.resize(std::size_t{size} * size);
    const auto of_a = fill(size, kernels::mixed(seed), kernels::row_weight,
                           [&](auto line, auto k, int element) { put_a(product.a, line, k, element); });
    const auto of_b = fill(size, kernels::mixed(seed + 1), kernels::column_weight,
                           [&](auto line, auto k, int element) { put_b(product.b, line, k, element); });
    for (std::uint32_t k = 0; k < size; ++k) product.checksum += of_a[k] * of_b[k];
    return product;
}

}  // namespace

KnownProduct<std::uint16_t> known_halves(std::uint32_t size, std::uint64_t seed) {
    std::array<std::uint16_t, 2 * largest + 1> halves{};
    for (int i = -largest; i <= largest; ++i)
        halves[static_cast<std::size_t>(i + largest)] = f16_of_f32(static_cast<float>(i));
    constexpr std::uint32_t square = kernels::CheckHalves::square;
    const auto square_of = [size](std::uint32_t line, std::uint32_t k) {
        return (std::size_t{line / square} * (size / square) + k / square) * (square * square);
    };
    return known_product<std::uint16_t>(
        size, seed,
        [&](auto& a, auto line, auto k, int element) {
            a[square_of(line, k) + line % square * square + k % square] =
                halves[static_cast<std::size_t>(element + largest)];
        },
        [&](auto& b, auto line, auto k, int element) {
            b[square_of(line, k) + k % square * square + line % square] =
                halves[static_cast<std::size_t>(element + largest)];
        });
}

KnownProduct<float> known_floats(std::uint32_t size, std::uint64_t seed) {
    constexpr std::uint32_t stripe = kernels::CheckFloats::stripe;
    const auto put = [size](auto& matrix, std::uint32_t line, std::uint32_t k, int element) {
        matrix[(std::size_t{line / stripe} * size + k) * stripe + line % stripe] = static_cast<float>(element);
    };
    return known_product<float>(size, seed, put, put);
}

}  // namespace muster::runtime
