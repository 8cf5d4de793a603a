// How kernels for PowerSGD find their work: one works on all matrices of a bucket at once. Its items are those of the
// first matrix, then those of the second one ...
#pragma once

#include "worker_runtime/arithmetic/power_elements.h"
#include "worker_runtime/kernels/kernel.h"

namespace muster::kernels {

/// Rows of a matrix, and columns of thin ones, that a block works on together: each number that a thread loads is used
/// four times.
inline constexpr std::uint32_t rows_together = 4;
inline constexpr std::uint32_t columns_together = 4;

/// How a matrix is cut into items.
struct PowerCuts {
    std::uint64_t row_groups = 0;    ///< of rows_together
    std::uint64_t row_tiles = 0;     ///< of a row for each thread
    std::uint64_t column_tiles = 0;  ///< of a column for each thread
    std::uint64_t tiles = 0;         ///< of part_rows rows by a column for each thread

    PowerCuts& operator+=(const PowerCuts& more) {
        row_groups += more.row_groups;
        row_tiles += more.row_tiles;
        column_tiles += more.column_tiles;
        tiles += more.tiles;
        return *this;
    }
};

/// A matrix of a bucket, in the GPU's memory.
struct PowerPlace {
    std::uint64_t rows;
    std::uint64_t inner;     ///< elements of a row
    std::uint64_t gradient;  ///< where it begins in the bucket, and the others in memory of their own:
    std::uint64_t p;
    std::uint64_t q;
    std::uint64_t kept;   ///< Q of the step before
    std::uint64_t parts;  ///< Q as sums of parts of the rows, one after another
    PowerCuts before;     ///< of the matrices before it
    std::int32_t parameter;

    [[nodiscard]] MUSTER_HOST_AND_DEVICE std::uint64_t part_count() const {
        return (rows + runtime::part_rows - 1) / runtime::part_rows;
    }
    [[nodiscard]] MUSTER_HOST_AND_DEVICE PowerCuts cuts() const {
        const std::uint64_t column_tiles = (inner + threads - 1) / threads;
        return {.row_groups = (rows + rows_together - 1) / rows_together,
                .row_tiles = (rows + threads - 1) / threads,
                .column_tiles = column_tiles,
                .tiles = part_count() * column_tiles};
    }
};

/// The matrices of a bucket.
struct PowerTable {
    const PowerPlace* places;
    std::uint32_t count;
    std::uint32_t columns;  ///< of P and Q
    PowerCuts cuts;         ///< of all

    [[nodiscard]] MUSTER_HOST_AND_DEVICE std::uint32_t column_groups() const {
        return (columns + columns_together - 1) / columns_together;
    }
    /// The matrix of a cut, whose number becomes its own.
    template <std::uint64_t PowerCuts::*Cut>
    [[nodiscard]] MUSTER_HOST_AND_DEVICE const PowerPlace& find(std::uint64_t& number) const {
        const auto* const all = places;
        const PowerPlace& found = all[place_of(number, count, [all](std::uint32_t k) { return all[k].before.*Cut; })];
        number -= found.before.*Cut;
        return found;
    }
};

/// Memory that is as large as all matrices of a bucket need.
template <class T>
struct PowerMemory {
    T* data;
    std::uint64_t count;
};

/// Items for whose threads nothing is shared.
struct PowerTileForm {
    using Shared = NoShared;
    static constexpr std::uint32_t phases = 1;
    static constexpr bool elementwise = false;
};

}  // namespace muster::kernels
