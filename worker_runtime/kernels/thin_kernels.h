// PowerSGD's thin matrices: makes P's columns orthonormal and keeps Q, bit for bit as arithmetic/thin_matrix.h and
// wires/power_exchange.h do.
#pragma once

#include "worker_runtime/kernels/power_table.h"

namespace muster::kernels {

/// Computes the dot products of all pairs of P's columns: one table per matrix, upper half filled. An item is a pair.
struct PowerGram {
    using Form = SumForm;
    PowerTable table;
    PowerMemory<const float> p;
    double* grams;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const {
        return std::uint64_t{table.count} * table.columns * table.columns;
    }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    SumForm::Shared& shared) const {
        const std::uint64_t pair = item % (table.columns * table.columns);
        const std::uint64_t a = pair / table.columns;
        const std::uint64_t b = pair % table.columns;
        if (b < a) return;
        if (phase == 0) {
            const PowerPlace& matrix = table.places[item / (table.columns * table.columns)];
            const float* const first = p.data + matrix.p + a * matrix.rows;
            const float* const second = p.data + matrix.p + b * matrix.rows;
            double sum = 0;
            for (std::uint64_t i = thread; i < matrix.rows; i += threads) {
                sum += static_cast<double>(first[i]) * static_cast<double>(second[i]);
            }
            shared.sums[thread] = sum;
        } else if (phase <= halvings) {
            halve(shared.sums, phase - 1, thread, Add());
        } else if (thread == 0) {
            grams[item] = shared.sums[0];
        }
    }
    void memory(auto&& visit) {
        visit(table.places, table.count);
        visit(p.data, p.count);
        visit(grams, items());
    }
};

struct PowerSolveForm {
    struct Shared {
        double table[runtime::power_columns_max * runtime::power_columns_max];
        double squares[runtime::power_columns_max];
    };
    static constexpr bool elementwise = false;
};

/// Computes from these products the coefficients that make P's columns orthonormal: row c of a table has the factor of
/// each old column in new column c.
struct PowerSolve {
    using Form = PowerSolveForm;
    double* grams;
    std::uint32_t count;
    std::uint32_t columns;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return count; }
    [[nodiscard]] MUSTER_HOST_AND_DEVICE std::uint32_t phase_count() const { return columns + 2; }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    PowerSolveForm::Shared& shared) const {
        const std::uint32_t entries = columns * columns;
        double* const own = grams + item * entries;
        for (std::uint32_t e = thread; e < entries; e += threads) {
            const std::uint32_t i = e / columns;
            const std::uint32_t j = e % columns;
            if (phase == 0) {
                shared.table[e] = own[e];
                if (i == j) shared.squares[i] = own[e];
            } else if (phase <= columns) {
                runtime::eliminate(shared.table, columns, phase - 1, i, j, shared.squares[phase - 1]);
            } else if (j <= i) {
                own[e] = runtime::orthonormal_share(shared.table, columns, i, j, shared.squares[i]);
            }
        }
    }
    void memory(auto&& visit) { visit(grams, std::uint64_t{count} * columns * columns); }
};

/// Applies the coefficients to P's columns.
struct PowerTurn {
    using Form = PowerTileForm;
    PowerTable table;
    const double* shares;
    PowerMemory<float> p;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return table.cuts.row_tiles; }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t /*phase*/, std::uint64_t item, std::uint32_t thread,
                                    NoShared& /*shared*/) const {
        const PowerPlace& matrix = table.find<&PowerCuts::row_tiles>(item);
        const std::uint64_t i = item * threads + thread;
        if (i >= matrix.rows) return;
        float* const own = p.data + matrix.p + i;
        const double* const mine =
            shares + static_cast<std::uint64_t>(&matrix - table.places) * table.columns * table.columns;
        // From the last column backwards, because a column depends on itself and on those before it.
        for (std::uint64_t c = table.columns; c-- > 0;) {
            double sum = 0;
            for (std::uint64_t d = 0; d <= c; ++d) {
                sum += mine[c * table.columns + d] * static_cast<double>(own[d * matrix.rows]);
            }
            own[c * matrix.rows] = static_cast<float>(sum);
        }
    }
    void memory(auto&& visit) {
        visit(table.places, table.count);
        visit(shares, std::uint64_t{table.count} * table.columns * table.columns);
        visit(p.data, p.count);
    }
};

struct PowerKeepForm : Halving {
    struct Shared {
        std::uint32_t seen[threads];
    };
};

/// Keeps Q for the next step. Columns that are zero or not finite get their starting values again. An item is a column.
struct PowerKeep {
    using Form = PowerKeepForm;
    static constexpr std::uint32_t some = 1;   ///< the column has a number other than zero
    static constexpr std::uint32_t wrong = 2;  ///< the column has a number that is not finite
    PowerTable table;
    PowerMemory<const float> q;
    PowerMemory<float> kept;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return std::uint64_t{table.count} * table.columns; }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    PowerKeepForm::Shared& shared) const {
        if (phase > 0 && phase <= halvings) return halve(shared.seen, phase - 1, thread, Either());
        const PowerPlace& matrix = table.places[item / table.columns];
        const std::uint64_t begin = item % table.columns * matrix.inner;
        const float* const column = q.data + matrix.q + begin;
        if (phase == 0) {
            std::uint32_t seen = 0;
            for (std::uint64_t j = thread; j < matrix.inner; j += threads) {
                const float x = column[j];
                seen |= (x != 0 ? some : 0) | (x - x == 0 ? 0 : wrong);
            }
            shared.seen[thread] = seen;
            return;
        }
        float* const next = kept.data + matrix.kept + begin;
        for (std::uint64_t j = thread; j < matrix.inner; j += threads) {
            next[j] = shared.seen[0] == some ? column[j] : runtime::power_start(matrix.parameter, begin + j);
        }
    }
    void memory(auto&& visit) {
        visit(table.places, table.count);
        visit(q.data, q.count);
        visit(kept.data, kept.count);
    }
};

}  // namespace muster::kernels
