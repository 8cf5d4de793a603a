#include "worker_runtime/core/parts_table.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

bool lies_in_a_row(const std::vector<Part>& parts) {
    std::size_t end = 0;
    for (const auto& part : parts) {
        if (part.offset != end) return false;
        end += part.count;
    }
    return true;
}

}  // namespace

PartsTable::PartsTable(const Operation& operation, int rank, int size)
    : rank_(rank), size_(size), type_(operation.type), rows_(static_cast<std::size_t>(size) * row_count()) {
    auto* next = row(rank);
    for (const auto& part : operation.parts->sent) *next++ = static_cast<std::int64_t>(part.count);
    for (const auto& part : operation.parts->expected) *next++ = static_cast<std::int64_t>(part.count);
    *next = lies_in_a_row(operation.parts->sent) && lies_in_a_row(operation.parts->expected) ? 1 : 0;
}

Operation PartsTable::exchange() {
    return all_gather({own_row(), row_count(), DataType::i64}, {rows(), rows_.size(), DataType::i64});
}

int PartsTable::damaged() const {
    const auto most = static_cast<std::int64_t>(memory_bytes_max / size_of(type_));
    for (int rank = 0; rank < size_; ++rank) {
        const auto* const counts = row(rank);
        if (std::any_of(counts, counts + 2 * size_, [&](std::int64_t count) { return count < 0 || count > most; }))
            return rank;
    }
    return -1;
}

std::string PartsTable::contradiction(const std::function<std::string(int)>& who) const {
    for (int from = 0; from < size_; ++from) {
        for (int to = 0; to < size_; ++to) {
            const auto sent = row(from)[to];
            const auto expected = row(to)[size_ + from];
            if (sent == expected) continue;
            return cat(name(OperationKind::all_to_all_uneven), ": ", who(from), " sends ", sent, " elements of ",
                       name(type_), " to ", who(to), ", which expects ", expected, "; make both counts equal");
        }
    }
    return {};
}

std::size_t PartsTable::largest() const {
    std::int64_t most = 0;
    for (int from = 0; from < size_; ++from)
        for (int to = 0; to < size_; ++to)
            if (to != from) most = std::max(most, row(from)[to]);
    return static_cast<std::size_t>(most);
}

bool PartsTable::is_even() const {
    for (int rank = 0; rank < size_; ++rank) {
        const auto* const counts = row(rank);
        const auto* const end = counts + 2 * size_;
        if (*end != 1 || std::any_of(counts, end, [&](std::int64_t count) { return count != *row(0); })) return false;
    }
    return true;
}

}  // namespace muster::runtime
