// Kernels that test a GPU for `muster doctor --level 3`: products of matrices with a known checksum, and a pattern in
// memory.
//
// The matrices hold whole numbers from -15 to 15. A product of depth 4,096 stays below 2^24, so f32 has every sum
// exactly, in whatever order a GPU adds, with or without tensor cores. The checksum of a product C is the sum of
// row_weight(i) * column_weight(j) * C(i, j), modulo 2^64. Because the weights are a product, the host computes the
// same number from the factors alone, in the time of reading them once (worker_runtime/gpu_test/known_product.h). C
// itself is never stored.
#pragma once

#include "worker_runtime/arithmetic/half_formats.h"
#include "worker_runtime/kernels/kernel.h"

#if defined(__clang__) || defined(__CUDACC__)
#define MUSTER_UNROLL _Pragma("unroll")
#else
#define MUSTER_UNROLL
#endif

namespace muster::kernels {

/// The same bits as with two roundings, because the sums are exact.
MUSTER_HOST_AND_DEVICE inline float multiply_add(float a, float b, float c) {
#if defined(__clang__) && defined(__CUDA_ARCH__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/// Mixes all bits (the finalizer of splitmix64).
MUSTER_HOST_AND_DEVICE inline std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/// Odd, so that no bit of an element is lost.
MUSTER_HOST_AND_DEVICE inline std::uint64_t row_weight(std::uint64_t row) {
    return mixed(row + 0x9e3779b97f4a7c15u) | 1;
}
MUSTER_HOST_AND_DEVICE inline std::uint64_t column_weight(std::uint64_t column) {
    return mixed(column + 0xd1b54a32d192ed03u) | 1;
}
MUSTER_HOST_AND_DEVICE inline std::uint64_t weighted(std::uint64_t row, std::uint64_t column, float element) {
    return row_weight(row) * column_weight(column) * static_cast<std::uint64_t>(static_cast<std::int64_t>(element));
}

struct AddModulo {
    MUSTER_HOST_AND_DEVICE std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a + b; }
};

/// The first phase computes a sum for each thread, and the others add them.
struct ChecksumForm : Halving {
    struct Shared {
        alignas(32) float tiles[threads / 32][256];  // 16 x 16 elements of each warp
        std::uint64_t sums[threads];
    };
};

MUSTER_HOST_AND_DEVICE void run_checksum(const auto& kernel, std::uint32_t phase, std::uint64_t item,
                                         std::uint32_t thread, ChecksumForm::Shared& shared, std::uint64_t* sums) {
    if (phase == 0) {
        shared.sums[thread] = kernel.sum_of(item, thread, shared);
    } else if (phase <= halvings) {
        halve(shared.sums, phase - 1, thread, AddModulo());
    } else if (thread == 0) {
        sums[item] = shared.sums[0];
    }
}

/// sums[item] is the checksum of 128 x 256 elements of a * b, of f16, with `size` rows and columns. Both factors lie in
/// squares of 16 x 16: those of `a` by rows of squares, those of `b` by columns of squares, each square by its rows.
/// `size` is a multiple of 256, `depth` of 16. With clang a GPU uses its tensor cores.
struct CheckHalves {
    using Form = ChecksumForm;
    static constexpr std::uint32_t tile_rows = 128, tile_columns = 256, square = 16;
    const std::uint16_t* a;
    const std::uint16_t* b;
    std::uint64_t* sums;
    std::uint32_t size;
    std::uint32_t depth;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const {
        return std::uint64_t{size / tile_rows} * (size / tile_columns);
    }
    MUSTER_HOST_AND_DEVICE const std::uint16_t* square_of(const std::uint16_t* factor, std::uint64_t line,
                                                          std::uint64_t step) const {
        return factor + (line * (depth / square) + step) * (square * square);
    }
    MUSTER_HOST_AND_DEVICE std::uint64_t sum_of(std::uint64_t item, std::uint32_t thread,
                                                ChecksumForm::Shared& shared) const {
        const std::uint64_t first_row = item / (size / tile_columns) * tile_rows;
        const std::uint64_t first_column = item % (size / tile_columns) * tile_columns;
#if defined(__clang__) && defined(__CUDA_ARCH__)
        // Each of the 8 warps computes 64 x 64 elements.
        const std::uint32_t warp = thread / 32;
        return sum_of_warp(first_row + warp / 4 * 64, first_column + warp % 4 * 64, thread % 32, shared.tiles[warp]);
#else
        (void)shared;
        const std::uint64_t column = first_column + thread;
        std::uint64_t sum = 0;
        for (std::uint64_t row = first_row; row < first_row + tile_rows; ++row) {
            float element = 0;
            for (std::uint32_t k = 0; k < depth; ++k) {
                const auto* const left = square_of(a, row / square, k / square);
                const auto* const right = square_of(b, column / square, k / square);
                element += runtime::f32_of_f16(left[row % square * square + k % square]) *
                           runtime::f32_of_f16(right[k % square * square + column % square]);
            }
            sum += weighted(row, column, element);
        }
        return sum;
#endif
    }
#if defined(__clang__) && defined(__CUDA_ARCH__)
    __attribute__((device)) std::uint64_t sum_of_warp(std::uint64_t row, std::uint64_t column, std::uint32_t lane,
                                                      float* tile) const {
        float c[4][4][8] = {};
        for (std::uint32_t step = 0; step < depth / square; ++step) {
            int left[4][8], right[4][8];
            MUSTER_UNROLL
            for (int i = 0; i < 4; ++i) {
                __hmma_m16n16k16_ld_a(left[i], reinterpret_cast<const int*>(square_of(a, row / square + i, step)),
                                      square, 0);
                __hmma_m16n16k16_ld_b(right[i], reinterpret_cast<const int*>(square_of(b, column / square + i, step)),
                                      square, 0);
            }
            MUSTER_UNROLL
            for (int i = 0; i < 4; ++i) {
                MUSTER_UNROLL
                for (int j = 0; j < 4; ++j) __hmma_m16n16k16_mma_f32f32(c[i][j], left[i], right[j], c[i][j], 0, 0);
            }
        }
        // Which lane holds which element is not specified, so they go through shared memory.
        std::uint64_t sum = 0;
        MUSTER_UNROLL
        for (int i = 0; i < 4; ++i) {
            MUSTER_UNROLL
            for (int j = 0; j < 4; ++j) {
                __hmma_m16n16k16_st_c_f32(tile, c[i][j], square, 0);
                __nvvm_bar_warp_sync(0xffffffffu);
                for (std::uint32_t at = lane; at < square * square; at += 32) {
                    sum += weighted(row + i * square + at / square, column + j * square + at % square, tile[at]);
                }
                __nvvm_bar_warp_sync(0xffffffffu);
            }
        }
        return sum;
    }
#endif
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    ChecksumForm::Shared& shared) const {
        run_checksum(*this, phase, item, thread, shared, sums);
    }
    void memory(auto&& visit) {
        visit(a, std::uint64_t{size} * depth);
        visit(b, std::uint64_t{size} * depth);
        visit(sums, items());
    }
};

/// The same of f32, without tensor cores: sums[item] is that of 128 x 128 elements. `a` lies in stripes of 128 rows,
/// `b` in stripes of 128 columns, each stripe by its 128 elements of one depth after another. `size` is a multiple of
/// 128, `depth` of 4.
struct CheckFloats {
    using Form = ChecksumForm;
    static constexpr std::uint32_t stripe = 128;
    struct alignas(16) Four {
        float of[4];
    };
    const float* a;
    const float* b;
    std::uint64_t* sums;
    std::uint32_t size;
    std::uint32_t depth;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return std::uint64_t{size / stripe} * (size / stripe); }
    /// A thread computes 8 x 8 elements: 4 at `mine`, and 4 that are 64 further, in both directions.
    MUSTER_HOST_AND_DEVICE static std::uint32_t place(std::uint32_t mine, std::uint32_t i) {
        return mine + i % 4 + i / 4 * 64;
    }
    MUSTER_HOST_AND_DEVICE static void add_products(float (&c)[8][8], const Four (&rows)[2], const Four (&columns)[2]) {
        MUSTER_UNROLL
        for (int i = 0; i < 8; ++i) {
            MUSTER_UNROLL
            for (int j = 0; j < 8; ++j)
                c[i][j] = multiply_add(rows[i / 4].of[i % 4], columns[j / 4].of[j % 4], c[i][j]);
        }
    }
    MUSTER_HOST_AND_DEVICE std::uint64_t sum_of(std::uint64_t item, std::uint32_t thread,
                                                ChecksumForm::Shared& /*shared*/) const {
        const std::uint64_t row_stripe = item / (size / stripe), column_stripe = item % (size / stripe);
        const std::uint32_t row = thread / 16 * 4, column = thread % 16 * 4;
        const auto* left = reinterpret_cast<const Four*>(a + row_stripe * stripe * depth + row);
        const auto* right = reinterpret_cast<const Four*>(b + column_stripe * stripe * depth + column);
        float c[8][8] = {};
        constexpr std::uint32_t at_once = 4;  // loads in flight
        for (std::uint32_t k = 0; k < depth; k += at_once) {
            Four rows[at_once][2], columns[at_once][2];
            MUSTER_UNROLL
            for (std::uint32_t i = 0; i < at_once; ++i, left += stripe / 4, right += stripe / 4) {
                rows[i][0] = left[0], rows[i][1] = left[16];
                columns[i][0] = right[0], columns[i][1] = right[16];
            }
            MUSTER_UNROLL
            for (std::uint32_t l = 0; l < at_once; ++l) add_products(c, rows[l], columns[l]);
        }
        std::uint64_t sum = 0;
        MUSTER_UNROLL
        for (std::uint32_t i = 0; i < 8; ++i) {
            MUSTER_UNROLL
            for (std::uint32_t j = 0; j < 8; ++j) {
                sum +=
                    weighted(row_stripe * stripe + place(row, i), column_stripe * stripe + place(column, j), c[i][j]);
            }
        }
        return sum;
    }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    ChecksumForm::Shared& shared) const {
        run_checksum(*this, phase, item, thread, shared, sums);
    }
    void memory(auto&& visit) {
        visit(a, std::uint64_t{size} * depth);
        visit(b, std::uint64_t{size} * depth);
        visit(sums, items());
    }
};

/// Fills memory with numbers that depend on their place, or with their complement (`flip` is all ones).
struct PatternWrite {
    using Form = Elementwise;
    std::uint64_t* data;
    std::uint64_t count;
    std::uint64_t seed;
    std::uint64_t flip;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const { data[i] = mixed(seed + i) ^ flip; }
    void memory(auto&& visit) { visit(data, count); }
};

/// Counts the numbers that differ from what PatternWrite wrote: wrong[item] for each item.
struct PatternCompare {
    using Form = ChecksumForm;
    static constexpr std::uint64_t items_max = 4096;
    const std::uint64_t* data;
    std::uint64_t count;
    std::uint64_t seed;
    std::uint64_t flip;
    std::uint64_t* wrong;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const {
        const std::uint64_t wanted = (count + 16 * threads - 1) / (16 * threads);
        return wanted < items_max ? wanted : items_max;
    }
    MUSTER_HOST_AND_DEVICE std::uint64_t sum_of(std::uint64_t item, std::uint32_t thread,
                                                ChecksumForm::Shared& /*shared*/) const {
        std::uint64_t found = 0;
        for (std::uint64_t i = item * threads + thread; i < count; i += items() * threads) {
            if (data[i] != (mixed(seed + i) ^ flip)) ++found;
        }
        return found;
    }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    ChecksumForm::Shared& shared) const {
        run_checksum(*this, phase, item, thread, shared, wrong);
    }
    void memory(auto&& visit) {
        visit(data, count);
        visit(wrong, items());
    }
};

}  // namespace muster::kernels

#undef MUSTER_UNROLL
