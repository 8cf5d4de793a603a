// What all ranks of an all_to_all_uneven send and expect: they exchange it first, and compare it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "muster/operation.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

/// Larger than any host's memory. Sizes are rounded up, which overflows without a limit.
inline constexpr std::size_t memory_bytes_max = std::size_t{1} << 56;

class PartsTable {
  public:
    PartsTable(const Operation& operation, int rank, int size);

    /// This rank's row: the counts that it sends to each rank, those that it expects, and 1 if both lie in a row.
    [[nodiscard]] const std::int64_t* own_row() const { return row(rank_); }
    [[nodiscard]] std::size_t row_count() const { return 2 * static_cast<std::size_t>(size_) + 1; }
    [[nodiscard]] std::size_t row_bytes() const { return row_count() * sizeof(std::int64_t); }
    /// The rows of all ranks, in rank order. Fill in those of the others.
    [[nodiscard]] std::int64_t* rows() { return rows_.data(); }
    [[nodiscard]] std::int64_t* row(int rank) { return rows() + static_cast<std::size_t>(rank) * row_count(); }
    [[nodiscard]] const std::int64_t* row(int rank) const {
        return rows_.data() + static_cast<std::size_t>(rank) * row_count();
    }
    /// To exchange the rows as an all_gather in place.
    [[nodiscard]] Operation exchange();

    /// The first rank whose row has a number that no rank can have meant, so that nothing may follow it; -1: none.
    [[nodiscard]] int damaged() const;
    static constexpr auto damage = "a part of more elements than any memory holds";
    /// The text of the first contradiction, the same on all ranks; `who` names a rank. Empty: there is none.
    [[nodiscard]] std::string contradiction(const std::function<std::string(int)>& who) const;
    /// The elements of the largest part that goes to another rank.
    [[nodiscard]] std::size_t largest() const;
    /// All parts are of one size and lie in a row: it is an all_to_all.
    [[nodiscard]] bool is_even() const;

  private:
    const int rank_;
    const int size_;
    const DataType type_;
    std::vector<std::int64_t> rows_;
};

/// The error of a contradiction: all ranks find it before data moves, so their group stands.
inline Error contradiction_error(std::string text) {
    return {Errc::invalid_argument, std::move(text)};
}

/// Whether `error` may be one. If the group has failed, it is not.
inline bool may_be_contradiction(const Operation& operation, const Error& error) {
    return operation.kind == OperationKind::all_to_all_uneven && error.code == Errc::invalid_argument;
}

}  // namespace muster::runtime
