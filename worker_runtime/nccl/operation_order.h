// The operations of a rank on one communicator, in a form that ranks can compare while they continue.
//
// NCCL executes operations that differ between ranks if their bytes happen to fit: f32 x 100 with i32 x 100 completes
// with garbage. Each rank therefore keeps a hash over the signatures of all its operations in their order. Ranks
// compare at different moments, so they compare hashes at fixed numbers: each of the last few, each 64th of the last
// 2,048 and each 4,096th of the last 131,072. A rank that is further ahead has no number in common, and is compared the
// next time. A hash covers everything before it, so a difference persists. The latest equal number and the first
// different one enclose it; the signatures between them, from the rank that found it, name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/operation.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

/// What must be equal on all ranks.
struct OperationSignature {
    enum class Act : std::uint8_t { operation, allocate, split };

    Act act = Act::operation;
    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::u8;
    ReduceOp reduce = ReduceOp::sum;
    bool weighted = false;
    std::int32_t peer = -1;
    std::uint32_t tag = 0;
    std::uint64_t count = 0;  ///< for allocate: bytes

    friend bool operator==(const OperationSignature&, const OperationSignature&) = default;
};

OperationSignature signature_of(const Operation& operation);

/// Returns a text such as "all_reduce sum f32 x 1024 tagged 7".
std::string description_of(const OperationSignature& signature);

/// One number and the hash over all operations up to it.
struct OrderMark {
    std::uint64_t number = 0;
    std::uint64_t hash = 0;
    friend bool operator==(const OrderMark&, const OrderMark&) = default;
};

/// Ranks agree up to operation `agreed`, and differ at `differs` or before.
struct OrderDispute {
    std::uint64_t agreed = 0;
    std::uint64_t differs = 0;
};

/// The first operation that differs. `theirs` is empty if it is unknown.
struct OrderDifference {
    std::uint64_t number = 0;
    std::string own{};
    std::string theirs{};
};

class OperationOrder {
  public:
    /// The number of operations whose signatures are kept.
    static constexpr std::size_t kept_max = 4096;

    /// Adds the next operation; numbers count from 1.
    void add(const OperationSignature& signature);

    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] const OperationSignature& last() const { return last_; }

    /// Returns the marks, oldest first within each distance.
    [[nodiscard]] std::vector<OrderMark> marks() const;

    /// Returns nothing if all common marks are equal, or if there are none.
    [[nodiscard]] std::optional<OrderDispute> compare(const std::vector<OrderMark>& theirs) const;

    /// Returns the kept signatures in `dispute`, for the other rank: "5=barrier\t6=...". Empty if there are too
    /// many.
    [[nodiscard]] std::string dispute_text(const OrderDispute& dispute) const;
    /// Returns the first operation that differs from those in `words`, the other rank's dispute_text().
    [[nodiscard]] std::optional<OrderDifference> find(std::string_view words) const;

  private:
    struct Entry {
        OperationSignature signature;
        std::uint64_t hash;
    };
    [[nodiscard]] const Entry* entry(std::uint64_t number) const;

    std::uint64_t count_ = 0;
    std::uint64_t hash_ = 0;
    OperationSignature last_;
    std::deque<Entry> entries_;  ///< the latest operations
    std::deque<OrderMark> rare_;
};

/// Encodes marks for the store, and decodes them.
std::string encode(const std::vector<OrderMark>& marks);
Result<std::vector<OrderMark>> decode_marks(std::string_view text);

}  // namespace muster::runtime
