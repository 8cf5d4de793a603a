// How the PowerSGD kernels find their work. One launch works on all matrices of a bucket; its items are those of the
// first matrix, then those of the second, and so on.
#pragma once

#include "worker_runtime/arithmetic/power_elements.h"
#include "worker_runtime/kernels/kernel.h"

namespace muster::kernels {

/// A block works on this many rows of a matrix and columns of thin matrices together, so each loaded number is used
/// four times.
inline constexpr std::uint32_t rows_together = 4;
inline constexpr std::uint32_t columns_together = 4;

/// The number of items of one matrix, by kind of division.
struct PowerCuts {
    std::uint64_t row_groups = 0;    ///< groups of rows_together rows
    std::uint64_t row_tiles = 0;     ///< tiles with one row per thread
    std::uint64_t column_tiles = 0;  ///< tiles with one column per thread
    std::uint64_t tiles = 0;         ///< tiles of part_rows rows with one column per thread

    PowerCuts& operator+=(const PowerCuts& more) {
        row_groups += more.row_groups;
        row_tiles += more.row_tiles;
        column_tiles += more.column_tiles;
        tiles += more.tiles;
        return *this;
    }
};

/// One matrix of a bucket. Positions are element offsets in the bucket or in the table's own buffers.
struct PowerPlace {
    std::uint64_t rows;
    std::uint64_t inner;     ///< elements per row
    std::uint64_t gradient;  ///< offset of the gradient in the bucket; the next ones are offsets in their own buffers
    std::uint64_t p;
    std::uint64_t q;
    std::uint64_t kept;   ///< offset of Q from the previous step
    std::uint64_t parts;  ///< offset of Q's partial sums, one per part of the rows
    PowerCuts before;     ///< items of all matrices before this one
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
    std::uint32_t columns;  ///< columns of P and Q
    PowerCuts cuts;         ///< items of all matrices

    [[nodiscard]] MUSTER_HOST_AND_DEVICE std::uint32_t column_groups() const {
        return (columns + columns_together - 1) / columns_together;
    }
    /// Finds the matrix of an item, and changes the item's number to one within that matrix.
    template <std::uint64_t PowerCuts::*Cut>
    [[nodiscard]] MUSTER_HOST_AND_DEVICE const PowerPlace& find(std::uint64_t& number) const {
        const auto* const all = places;
        const PowerPlace& found = all[place_of(number, count, [all](std::uint32_t k) { return all[k].before.*Cut; })];
        number -= found.before.*Cut;
        return found;
    }
};

/// The buffers for all matrices of a bucket.
template <class T>
struct PowerMemory {
    T* data;
    std::uint64_t count;
};

/// For kernels whose threads share no memory.
struct PowerTileForm {
    using Shared = NoShared;
    static constexpr std::uint32_t phases = 1;
    static constexpr bool elementwise = false;
};

}  // namespace muster::kernels
