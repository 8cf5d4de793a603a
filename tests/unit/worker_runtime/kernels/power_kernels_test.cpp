// PowerSGD's kernels for GPUs, run on the host thread by thread over several matrices at once: they have the bits of
// what the host does with each.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/stand_ins/run_kernel.h"
#include "tests/support/catch.h"
#include "worker_runtime/arithmetic/thin_matrix.h"

using namespace muster;
using stand_ins::launch_here;

namespace {

using Floats = std::vector<float>;

struct Shape {
    std::size_t rows;
    std::size_t inner;
};
/// One row, one column, all edges of tiles and one beyond, more than a block and a part.
const std::vector<Shape> shapes{{1, 9}, {64, 5}, {257, 1}, {65, 256}, {131, 700}, {300, 257}};

Floats random_floats(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Floats values(count);
    for (auto& each : values) each = normal(random);
    return values;
}

/// Ends with a guard that nothing may write.
constexpr float guard = 12345;

bool same_bits(const Floats& a, const Floats& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// The matrices of a bucket, and what a step makes of them.
struct Bucket {
    std::vector<kernels::PowerPlace> places;
    kernels::PowerTable table{};
    Floats gradients, lost, p, q, kept, parts;
    std::vector<double> grams;

    explicit Bucket(std::uint32_t columns) {
        std::size_t gradient = 3, p_at = 0, q_at = 0, parts_at = 0;
        kernels::PowerCuts cuts;
        for (const auto& [rows, inner] : shapes) {
            const auto& place =
                places.emplace_back(kernels::PowerPlace{.rows = rows,
                                                        .inner = inner,
                                                        .gradient = gradient,
                                                        .p = p_at,
                                                        .q = q_at,
                                                        .kept = q_at + 7,
                                                        .parts = parts_at,
                                                        .before = cuts,
                                                        .parameter = static_cast<std::int32_t>(places.size()) + 4});
            gradient += rows * inner + 5;
            p_at += rows * columns;
            q_at += inner * columns;
            parts_at += place.part_count() * inner * columns;
            cuts += place.cuts();
        }
        table = {places.data(), static_cast<std::uint32_t>(places.size()), columns, cuts};
        gradients = random_floats(gradient, 1);
        lost = random_floats(gradient, 2);
        kept = random_floats(q_at + 7, 3);
        p.assign(p_at + 1, guard);
        q.assign(q_at + 1, guard);
        parts.assign(parts_at + 1, guard);
        grams.resize(places.size() * columns * columns);
    }
    Bucket(const Bucket&) = delete;
    Bucket& operator=(const Bucket&) = delete;

    template <class T = float>
    static kernels::PowerMemory<T> all(Floats& values) {
        return {values.data(), values.size()};
    }
    void project(std::uint64_t blocks) {
        launch_here(kernels::PowerProject{table, all<const float>(gradients), all<const float>(kept), all(p)}, blocks);
    }
    void turn(std::uint64_t blocks) {
        launch_here(kernels::PowerGram{table, all<const float>(p), grams.data()}, blocks);
        launch_here(kernels::PowerSolve{grams.data(), table.count, table.columns}, blocks);
        launch_here(kernels::PowerTurn{table, grams.data(), all(p)}, blocks);
    }
    void project_back(std::uint64_t blocks) {
        launch_here(kernels::PowerProjectBack{table, all<const float>(gradients), all<const float>(p), all(parts)},
                    blocks);
        launch_here(kernels::PowerAddParts{table, all<const float>(parts), all(q)}, blocks);
    }
    void restore(bool learns, std::uint64_t blocks) {
        launch_here(
            kernels::PowerRestore{table, all(gradients), lost.data(), all<const float>(p), all<const float>(q), learns},
            blocks);
        launch_here(kernels::PowerKeep{table, all<const float>(q), all(kept)}, blocks);
    }
};

}  // namespace

TEST_CASE("PowerSGD's kernels have the bits of the host, whatever the shapes") {
    for (const std::uint32_t columns : {1, 2, 4, 7, 64}) {
        INFO(columns << " columns");
        for (const bool learns : {true, false}) {
            Bucket here(columns);
            Bucket host(columns);
            here.project(3);
            for (const auto& m : host.places) {
                runtime::multiply(host.gradients.data() + m.gradient, m.rows, m.inner, host.kept.data() + m.kept,
                                  columns, host.p.data() + m.p);
            }
            CHECK(same_bits(here.p, host.p));
            here.turn(2);
            for (const auto& m : host.places) runtime::make_orthonormal(host.p.data() + m.p, m.rows, columns);
            CHECK(same_bits(here.p, host.p));
            here.project_back(5);
            for (const auto& m : host.places) {
                runtime::multiply_transposed(host.gradients.data() + m.gradient, m.rows, m.inner, host.p.data() + m.p,
                                             columns, host.q.data() + m.q);
            }
            CHECK(same_bits(here.q, host.q));
            here.restore(learns, 4);
            for (const auto& m : host.places) {
                const Floats before(
                    host.gradients.begin() + static_cast<std::ptrdiff_t>(m.gradient),
                    host.gradients.begin() + static_cast<std::ptrdiff_t>(m.gradient + m.rows * m.inner));
                runtime::multiply_out(host.p.data() + m.p, m.rows, host.q.data() + m.q, m.inner, columns,
                                      host.gradients.data() + m.gradient);
                for (std::size_t i = 0; learns && i < before.size(); ++i) {
                    host.lost[m.gradient + i] = runtime::left_over(before[i], host.gradients[m.gradient + i]);
                }
            }
            CHECK(same_bits(here.gradients, host.gradients));
            CHECK(same_bits(here.lost, host.lost));
        }
    }
}

TEST_CASE("PowerSGD's kernels: columns that depend on others become zero, and columns of Q that are zero start anew") {
    constexpr std::uint32_t columns = 3;
    Bucket bucket(columns);
    Floats expected = bucket.kept;
    const float infinity = std::numeric_limits<float>::infinity();
    for (const auto& m : bucket.places) {
        for (std::size_t i = 0; i < m.rows; ++i) {
            auto* const p = bucket.p.data() + m.p + i;
            p[0] = static_cast<float>(i + 1);
            p[m.rows] = m.parameter == 6 ? 0.0f : 2 * p[0];
            p[2 * m.rows] = i == 0 ? 1e-3f : 0.0f;
        }
        for (std::size_t j = 0; j < m.inner; ++j) {
            auto* const q = bucket.q.data() + m.q + j;
            q[0] = static_cast<float>(j);
            q[m.inner] = 1;
            q[2 * m.inner] = 2;
        }
        // The first element of the first column is zero, so that of one row or element is.
        if (m.parameter == 5) bucket.q[m.q + m.inner] = infinity;
        if (m.parameter == 7) bucket.q[m.q + 3 * m.inner - 1] = std::nanf("");
        for (std::size_t c = 0; c < columns; ++c) {
            const bool anew = (c == 0 && m.inner == 1) || (c == 1 && m.parameter == 5) || (c == 2 && m.parameter == 7);
            for (std::size_t j = 0; j < m.inner; ++j) {
                const std::size_t i = c * m.inner + j;
                expected[m.kept + i] = anew ? runtime::power_start(m.parameter, i) : bucket.q[m.q + i];
            }
        }
    }
    Floats turned = bucket.p;
    bucket.turn(2);
    for (const auto& m : bucket.places) {
        runtime::make_orthonormal(turned.data() + m.p, m.rows, columns);
        CHECK(bucket.p[m.p + m.rows] == 0);
        CHECK(bucket.p[m.p + 2 * m.rows - 1] == 0);
        // One row leaves nothing for a second direction.
        CHECK((bucket.p[m.p + 2 * m.rows] == 0) == (m.rows == 1));
    }
    CHECK(same_bits(bucket.p, turned));
    launch_here(kernels::PowerKeep{bucket.table, Bucket::all<const float>(bucket.q), Bucket::all(bucket.kept)});
    CHECK(same_bits(bucket.kept, expected));
}

TEST_CASE("PowerSGD's kernels: what is no number makes its whole matrix so, no other, and leaves nothing behind") {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float odd : {infinity, -infinity, std::nanf(""), 3e37f}) {
        INFO(odd);
        constexpr std::uint32_t columns = 2;
        Bucket bucket(columns);
        const auto& m = bucket.places[4];
        auto& one = bucket.gradients[m.gradient + 69 * m.inner + 300];
        one = odd;
        bucket.project(1000);
        bucket.turn(1000);
        bucket.project_back(1000);
        bucket.restore(true, 1000);
        const bool finite = std::isfinite(odd);
        for (const auto& each : bucket.places) {
            for (std::size_t i = 0; i < each.rows * each.inner; ++i) {
                const float value = bucket.gradients[each.gradient + i];
                const float lost = bucket.lost[each.gradient + i];
                if (std::isfinite(value) == (&each == &m && !finite)) FAIL("element " << i << " is " << value);
                if (!std::isfinite(lost)) FAIL("lost " << lost);
                if (&each == &m && !finite && (lost != 0 || !std::isnan(value))) FAIL("lost " << lost);
            }
        }
        for (const float each : bucket.kept) CHECK(std::isfinite(each));
    }
}

TEST_CASE("a kernel packs gradients that lie in several places, and puts them back") {
    const std::vector<kernels::PowerSlice> slices{{0, 2}, {3, 2000}, {3, 10}, {1303, 0}};
    Floats gradients = random_floats(3000, 4);
    const Floats given = gradients;
    Floats packed(1305);
    kernels::PowerPack pack{slices.data(), {gradients.data(), gradients.size()}, packed.data(), 1304, 4, false};
    launch_here(pack);
    Floats expected(given.begin() + 2, given.begin() + 5);
    expected.insert(expected.end(), given.begin() + 10, given.begin() + 1310);
    expected.insert(expected.end(), {given[0], 0.0f});
    CHECK(same_bits(packed, expected));
    CHECK(same_bits(gradients, given));
    for (auto& each : packed) each = -each;
    pack.back = true;
    launch_here(pack);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < given.size(); ++i) changed += gradients[i] == -given[i] ? 1 : 0;
    CHECK(changed == 1304);
    CHECK(gradients[1309] == -given[1309]);
    CHECK(gradients[2000] == given[2000]);
}
