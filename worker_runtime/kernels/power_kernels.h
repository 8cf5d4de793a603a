// The matrix products of PowerSGD (wires/power_exchange.h), bit for bit equal to those of arithmetic/thin_matrix.h.
#pragma once

#include "worker_runtime/arithmetic/one_nan.h"
#include "worker_runtime/kernels/power_table.h"

namespace muster::kernels {

/// The gradients that are sent uncompressed after the P matrices, one after another.
struct PowerSlice {
    std::uint64_t packed;
    std::uint64_t gradient;
};

/// Copies uncompressed gradients between the bucket and the buffer that is sent.
struct PowerPack {
    using Form = Elementwise;
    const PowerSlice* slices;
    PowerMemory<float> gradients;
    float* packed;
    std::uint64_t count;
    std::uint32_t slice_count;
    bool back;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const {
        const auto* const all = slices;
        const PowerSlice slice = slices[place_of(i, slice_count, [all](std::uint32_t k) { return all[k].packed; })];
        float& gradient = gradients.data[slice.gradient + (i - slice.packed)];
        if (back) {
            gradient = packed[i];
        } else {
            packed[i] = gradient;
        }
    }
    void memory(auto&& visit) {
        visit(slices, slice_count);
        visit(gradients.data, gradients.count);
        visit(packed, count);
    }
};

/// Adds the residuals of earlier steps (error feedback) to the gradients.
struct PowerAdd {
    using Form = Elementwise;
    float* gradients;
    const float* lost;
    std::uint64_t count;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const { gradients[i] += lost[i]; }
    void memory(auto&& visit) {
        visit(gradients, count);
        visit(lost, count);
    }
};

struct PowerProjectForm : Halving {
    struct Shared {
        float sums[rows_together][columns_together][threads];
    };
};

/// Computes P = M Q. An item is a group of rows with a group of Q's columns; each thread adds one lane of a sum.
struct PowerProject {
    static_assert(threads == runtime::dot_lanes);
    using Form = PowerProjectForm;
    PowerTable table;
    PowerMemory<const float> gradients;
    PowerMemory<const float> kept;
    PowerMemory<float> p;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return table.cuts.row_groups * table.column_groups(); }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    PowerProjectForm::Shared& shared) const {
        if (phase > 0 && phase <= halvings) {
            for (std::uint32_t a = 0; a < rows_together; ++a) {
                for (std::uint32_t b = 0; b < columns_together; ++b) {
                    halve(shared.sums[a][b], phase - 1, thread, Add());
                }
            }
            return;
        }
        const std::uint64_t column = item % table.column_groups() * columns_together;
        std::uint64_t group = item / table.column_groups();
        const PowerPlace& matrix = table.find<&PowerCuts::row_groups>(group);
        const std::uint64_t row = group * rows_together;
        if (phase == 0) {
            add_up(matrix, row, column, thread, shared);
        } else if (thread < rows_together * columns_together) {
            const std::uint64_t a = thread / columns_together;
            const std::uint64_t b = thread % columns_together;
            if (row + a >= matrix.rows || column + b >= table.columns) return;
            p.data[matrix.p + (column + b) * matrix.rows + row + a] = shared.sums[a][b][0];
        }
    }
    void memory(auto&& visit) {
        visit(table.places, table.count);
        visit(gradients.data, gradients.count);
        visit(kept.data, kept.count);
        visit(p.data, p.count);
    }

  private:
    /// Computes this thread's lane. Indices beyond the last row or column read the last one again; the results are
    /// unused.
    MUSTER_HOST_AND_DEVICE void add_up(const PowerPlace& matrix, std::uint64_t row, std::uint64_t column,
                                       std::uint32_t thread, PowerProjectForm::Shared& shared) const {
        const float* lines[rows_together];
        const float* thin[columns_together];
        for (std::uint32_t a = 0; a < rows_together; ++a) {
            lines[a] = gradients.data + matrix.gradient + lesser(row + a, matrix.rows - 1) * matrix.inner;
        }
        for (std::uint32_t b = 0; b < columns_together; ++b) {
            thin[b] = kept.data + matrix.kept + lesser(column + b, table.columns - 1) * matrix.inner;
        }
        float sums[rows_together][columns_together] = {};
        for (std::uint64_t j = thread; j < matrix.inner; j += threads) {
            float factors[columns_together];
            for (std::uint32_t b = 0; b < columns_together; ++b) factors[b] = thin[b][j];
            for (std::uint32_t a = 0; a < rows_together; ++a) {
                const float x = lines[a][j];
                for (std::uint32_t b = 0; b < columns_together; ++b) sums[a][b] += x * factors[b];
            }
        }
        for (std::uint32_t a = 0; a < rows_together; ++a) {
            for (std::uint32_t b = 0; b < columns_together; ++b) shared.sums[a][b][thread] = sums[a][b];
        }
    }
};

/// Computes Q = M' P as partial sums over parts of the rows. An item is one part of a tile with a group of P's columns.
struct PowerProjectBack {
    using Form = PowerTileForm;
    PowerTable table;
    PowerMemory<const float> gradients;
    PowerMemory<const float> p;
    PowerMemory<float> parts;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return table.cuts.tiles * table.column_groups(); }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t /*phase*/, std::uint64_t item, std::uint32_t thread,
                                    NoShared& /*shared*/) const {
        const std::uint64_t column = item % table.column_groups() * columns_together;
        std::uint64_t tile = item / table.column_groups();
        const PowerPlace& matrix = table.find<&PowerCuts::tiles>(tile);
        const std::uint64_t column_tiles = matrix.cuts().column_tiles;
        const std::uint64_t part = tile / column_tiles;
        const std::uint64_t j = tile % column_tiles * threads + thread;
        if (j >= matrix.inner) return;
        const float* thin[columns_together];
        for (std::uint32_t b = 0; b < columns_together; ++b) {
            thin[b] = p.data + matrix.p + lesser(column + b, table.columns - 1) * matrix.rows;
        }
        const float* const m = gradients.data + matrix.gradient + j;
        const std::uint64_t end = lesser((part + 1) * runtime::part_rows, matrix.rows);
        float sums[columns_together] = {};
        for (std::uint64_t i = part * runtime::part_rows; i < end; ++i) {
            const float x = m[i * matrix.inner];
            for (std::uint32_t b = 0; b < columns_together; ++b) sums[b] += x * thin[b][i];
        }
        float* const out = parts.data + matrix.parts + part * table.columns * matrix.inner + j;
        for (std::uint32_t b = 0; b < columns_together && column + b < table.columns; ++b) {
            out[(column + b) * matrix.inner] = sums[b];
        }
    }
    void memory(auto&& visit) {
        visit(table.places, table.count);
        visit(gradients.data, gradients.count);
        visit(p.data, p.count);
        visit(parts.data, parts.count);
    }
};

/// Adds the partial sums of Q. An item is a tile of one of Q's columns.
struct PowerAddParts {
    using Form = PowerTileForm;
    PowerTable table;
    PowerMemory<const float> parts;
    PowerMemory<float> q;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return table.cuts.column_tiles * table.columns; }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t /*phase*/, std::uint64_t item, std::uint32_t thread,
                                    NoShared& /*shared*/) const {
        const std::uint64_t c = item % table.columns;
        std::uint64_t tile = item / table.columns;
        const PowerPlace& matrix = table.find<&PowerCuts::column_tiles>(tile);
        const std::uint64_t j = tile * threads + thread;
        if (j >= matrix.inner) return;
        const float* const from = parts.data + matrix.parts + c * matrix.inner + j;
        float sum = 0;
        for (std::uint64_t part = 0; part < matrix.part_count(); ++part) {
            sum += from[part * table.columns * matrix.inner];
        }
        q.data[matrix.q + c * matrix.inner + j] = sum;
    }
    void memory(auto&& visit) {
        visit(table.places, table.count);
        visit(parts.data, parts.count);
        visit(q.data, q.count);
    }
};

/// Computes M = P Q' and the residuals. A rank without samples keeps its residuals for a later step.
struct PowerRestore {
    using Form = PowerTileForm;
    PowerTable table;
    PowerMemory<float> gradients;
    float* lost;  ///< residuals, as many elements
    PowerMemory<const float> p;
    PowerMemory<const float> q;
    bool counts;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return table.cuts.tiles; }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t /*phase*/, std::uint64_t item, std::uint32_t thread,
                                    NoShared& /*shared*/) const {
        const PowerPlace& matrix = table.find<&PowerCuts::tiles>(item);
        const std::uint64_t column_tiles = matrix.cuts().column_tiles;
        const std::uint64_t j = item % column_tiles * threads + thread;
        if (j >= matrix.inner) return;
        const std::uint64_t first = item / column_tiles * runtime::part_rows;
        const std::uint64_t end = lesser(first + runtime::part_rows, matrix.rows);
        for (std::uint64_t row = first; row < end; row += rows_together) write(matrix, row, end, j);
    }
    void memory(auto&& visit) {
        visit(table.places, table.count);
        visit(gradients.data, gradients.count);
        visit(lost, gradients.count);
        visit(p.data, p.count);
        visit(q.data, q.count);
    }

  private:
    /// Processes a group of rows up to `end`.
    MUSTER_HOST_AND_DEVICE void write(const PowerPlace& matrix, std::uint64_t row, std::uint64_t end,
                                      std::uint64_t j) const {
        float sums[rows_together] = {};
        float values[rows_together];
        const std::uint64_t at = matrix.gradient + j;
        for (std::uint32_t a = 0; a < rows_together; ++a) {
            values[a] = gradients.data[at + lesser(row + a, end - 1) * matrix.inner];
        }
        for (std::uint64_t c = 0; c < table.columns; ++c) {
            const float factor = q.data[matrix.q + c * matrix.inner + j];
            const float* const column = p.data + matrix.p + c * matrix.rows;
            for (std::uint32_t a = 0; a < rows_together; ++a) sums[a] += column[lesser(row + a, end - 1)] * factor;
        }
        for (std::uint32_t a = 0; a < rows_together && row + a < end; ++a) {
            const float product = runtime::with_one_nan(sums[a]);
            gradients.data[at + (row + a) * matrix.inner] = product;
            if (counts) lost[at + (row + a) * matrix.inner] = runtime::left_over(values[a], product);
        }
    }
};

}  // namespace muster::kernels
