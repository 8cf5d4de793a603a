#include "worker_runtime/nccl/operation_order.h"

#include <algorithm>
#include <map>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/data/mixing.h"

namespace muster::runtime {

namespace {

/// How many marks are kept: of the latest numbers, of multiples of 64, and of multiples of 4,096.
constexpr std::uint64_t near_count = 16;
constexpr std::uint64_t middle_stride = 64;
constexpr std::uint64_t middle_count = 32;
constexpr std::uint64_t far_stride = 4096;
constexpr std::uint64_t far_count = 32;
/// The limit of listed signatures, because a value in the store should be small. Between two middle marks there are 64.
constexpr std::uint64_t listed_max = 256;

std::uint64_t hash_of_signature(const OperationSignature& signature) {
    const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
    const std::uint64_t small = number(signature.act) | number(signature.kind) << 8U | number(signature.type) << 16U |
                                number(signature.reduce) << 24U | number(signature.weighted) << 32U;
    const std::uint64_t rest = number(static_cast<std::uint32_t>(signature.peer)) << 32U | signature.tag;
    return hash_of(hash_of(small, rest), signature.count);
}

}  // namespace

OperationSignature signature_of(const Operation& operation) {
    return {.kind = operation.kind,
            .type = operation.type,
            .reduce = operation.reduce,
            .weighted = operation.weighted,
            .peer = operation.peer,
            .tag = operation.tag,
            .count = operation.count};
}

std::string description_of(const OperationSignature& signature) {
    if (signature.act == OperationSignature::Act::split) return "split";
    if (signature.act == OperationSignature::Act::allocate) return cat("allocate ", signature.count, " bytes");
    const Operation operation{.kind = signature.kind,
                              .type = signature.type,
                              .reduce = signature.reduce,
                              .count = signature.count,
                              .peer = signature.peer};
    return cat(describe(operation), signature.weighted ? " weighted" : "",
               signature.tag != 0 ? cat(" tagged ", signature.tag) : std::string());
}

void OperationOrder::add(const OperationSignature& signature) {
    last_ = signature;
    hash_ = hash_of(hash_, hash_of_signature(signature));
    ++count_;
    if (entries_.size() == kept_max) entries_.pop_front();
    entries_.push_back({signature, hash_});
    if (count_ % far_stride != 0) return;
    if (rare_.size() == far_count) rare_.pop_front();
    rare_.push_back({count_, hash_});
}

const OperationOrder::Entry* OperationOrder::entry(std::uint64_t number) const {
    const std::uint64_t before = count_ - entries_.size();
    if (number <= before || number > count_) return nullptr;
    return &entries_[static_cast<std::size_t>(number - before - 1)];
}

std::vector<OrderMark> OperationOrder::marks() const {
    std::vector<OrderMark> marks(rare_.begin(), rare_.end());
    const auto add = [&](std::uint64_t number) {
        if (const auto* const one = entry(number)) marks.push_back({number, one->hash});
    };
    const std::uint64_t middle = count_ / middle_stride;
    for (std::uint64_t k = middle - std::min(middle, middle_count); k <= middle; ++k) add(k * middle_stride);
    for (std::uint64_t k = count_ - std::min(count_, near_count); k <= count_; ++k) add(k);
    return marks;
}

std::optional<OrderDispute> OperationOrder::compare(const std::vector<OrderMark>& theirs) const {
    std::map<std::uint64_t, std::uint64_t> own;
    for (const auto& mark : marks()) own[mark.number] = mark.hash;
    std::optional<std::uint64_t> differs;
    for (const auto& mark : theirs) {
        const auto found = own.find(mark.number);
        if (found == own.end() || found->second == mark.hash) continue;
        differs = std::min(differs.value_or(mark.number), mark.number);
    }
    if (!differs) return std::nullopt;
    OrderDispute dispute{.differs = *differs};
    for (const auto& mark : theirs) {
        const auto found = own.find(mark.number);
        const bool same = found != own.end() && found->second == mark.hash;
        if (same && mark.number < *differs) dispute.agreed = std::max(dispute.agreed, mark.number);
    }
    return dispute;
}

std::string OperationOrder::dispute_text(const OrderDispute& dispute) const {
    std::vector<std::string> words;
    if (dispute.differs - dispute.agreed > listed_max) return "";
    for (std::uint64_t number = dispute.agreed + 1; number <= dispute.differs; ++number) {
        if (const auto* const one = entry(number)) words.push_back(cat(number, "=", description_of(one->signature)));
    }
    return join(words, "\t");
}

std::optional<OrderDifference> OperationOrder::find(std::string_view words) const {
    for (const auto& word : split(words, '\t')) {
        const auto equals = word.find('=');
        std::uint64_t number = 0;
        if (equals == std::string_view::npos || !parse_number(word.substr(0, equals), number)) continue;
        const auto* const one = entry(number);
        if (one == nullptr) continue;
        std::string theirs(word.substr(equals + 1));
        if (auto own = description_of(one->signature); own != theirs) {
            return OrderDifference{.number = number, .own = std::move(own), .theirs = std::move(theirs)};
        }
    }
    return std::nullopt;
}

std::string encode(const std::vector<OrderMark>& marks) {
    std::vector<std::string> words;
    for (const auto& mark : marks) words.push_back(cat(mark.number, ":", mark.hash));
    return join(words, " ");
}

Result<std::vector<OrderMark>> decode_marks(std::string_view text) {
    std::vector<OrderMark> marks;
    if (text.empty()) return marks;
    for (const auto& word : split(text, ' ')) {
        const auto colon = word.find(':');
        OrderMark mark;
        if (colon == std::string_view::npos || !parse_number(word.substr(0, colon), mark.number) ||
            !parse_number(word.substr(colon + 1), mark.hash)) {
            return Error{Errc::bad_frame, cat("the store holds no marks of operations: \"", text.substr(0, 80), "\"")};
        }
        marks.push_back(mark);
    }
    return marks;
}

}  // namespace muster::runtime
