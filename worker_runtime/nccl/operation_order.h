// The operations of a rank on one communicator, in a form that ranks can compare while they continue.
//
// NCCL executes operations that differ between ranks if their bytes happen to fit: f32 x 100 with i32 x 100 completes
// with garbage. Each rank therefore keeps a hash over the signatures of all its operations in their order. Ranks
// compare at different moments, so they compare hashes at fixed numbers: each of the last few, each 64th of the last
// 2,048 and each 4,096th of the last 131,072. A rank that is further ahead has no number in common, and is compared the
// next time. A hash covers everything before it, so a difference persists. The latest equal number and the first
// different one enclose it; the signatures between them, from the rank that found it, name it.
#pragma once

#include <array>
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

/// What all ranks must mean alike.
struct OperationSignature {
    enum class Act : std::uint8_t { operation, allocate, split };

    Act act = Act::operation;
    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::u8;
    ReduceOp reduce = ReduceOp::sum;
    bool weighted = false;
    std::int32_t peer = -1;
    std::uint32_t tag = 0;
    std::uint64_t count = 0;  ///< bytes of an allocate

    friend bool operator==(const OperationSignature&, const OperationSignature&) = default;
};

OperationSignature signature_of(const Operation& operation);

/// "all_reduce sum f32 x 1024 tagged 7".
std::string description_of(const OperationSignature& signature);

/// One number and the hash over all operations up to it.
struct OrderMark {
    std::uint64_t number = 0;
    std::uint64_t hash = 0;
    friend bool operator==(const OrderMark&, const OrderMark&) = default;
};

/// Ranks agree up to `agreed`, and no longer at `differs`.
struct OrderDispute {
    std::uint64_t agreed = 0;
    std::uint64_t differs = 0;
};

/// Where ranks differ. `theirs` is empty when it is not known.
struct OrderDifference {
    std::uint64_t number = 0;
    std::string own{};
    std::string theirs{};
};

class OperationOrder {
  public:
    /// Operations whose signatures are kept.
    static constexpr std::size_t kept_max = 4096;

    /// The next one; numbers count from 1.
    void add(const OperationSignature& signature);

    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] const OperationSignature& last() const { return last_; }

    /// Oldest first within each distance.
    [[nodiscard]] std::vector<OrderMark> marks() const;

    /// Nothing when they agree wherever both have a mark, or have none in common.
    [[nodiscard]] std::optional<OrderDispute> compare(const std::vector<OrderMark>& theirs) const;

    /// The signatures in `dispute` as far as they are kept, for the other rank: "5=barrier\t6=...". Empty where there
    /// are too many to be told.
    [[nodiscard]] std::string dispute_text(const OrderDispute& dispute) const;
    /// The first that the other rank (`words`, its dispute_text()) has otherwise.
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
    std::deque<Entry> entries_;  ///< the last ones
    std::deque<OrderMark> rare_;
};

/// For the store, and back.
std::string encode(const std::vector<OrderMark>& marks);
Result<std::vector<OrderMark>> decode_marks(std::string_view text);

}  // namespace muster::runtime
