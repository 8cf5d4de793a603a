// Reads the arguments of C callers and writes their results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "muster/muster.h"
#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/capi/failure.h"

namespace muster::capi {

/// A structure that begins with its size, from a caller whose header may be older (the rest is zero) or newer (which is
/// fine while it does not use what this library does not know). NULL: all zero.
template <class Structure>
Result<Structure> read(const Structure* given) {
    Structure read{};
    if (given == nullptr) return read;
    if (given->size < sizeof given->size) {
        return invalid("the structure's size is not set; write {.size = sizeof options}");
    }
    const auto* const bytes = reinterpret_cast<const std::byte*>(given);
    const auto known = std::min(given->size, sizeof read);
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (given->size > 4096 || !std::all_of(bytes + known, bytes + given->size, is_zero)) {
        return Error{
            Errc::unsupported,
            "the structure sets fields that this library does not know, or its size is wrong; load a newer library"};
    }
    std::memcpy(&read, bytes, known);
    return read;
}

/// As much of `value` as the caller's header knows.
template <class Structure>
Result<void> write(const Structure& value, Structure* to) {
    if (to == nullptr) return invalid("the structure to fill is NULL");
    if (to->size < sizeof to->size) return invalid("the structure's size is not set; write {.size = sizeof place}");
    const auto known = std::min(to->size, sizeof value);
    std::memcpy(reinterpret_cast<std::byte*>(to) + sizeof to->size,
                reinterpret_cast<const std::byte*>(&value) + sizeof value.size, known - sizeof value.size);
    return {};
}

/// Sets `*to`; `name` is the argument's.
template <class Place, class Value>
Result<void> give(Place* to, std::string_view name, const Value& value) {
    if (to == nullptr) return invalid(cat('`', name, "` is NULL"));
    *to = static_cast<Place>(value);
    return {};
}

inline Result<void> write_text(std::string_view value, char* text, std::size_t capacity, std::size_t* needed) {
    if (needed != nullptr) *needed = value.size() + 1;
    if (text == nullptr) return {};
    if (capacity > 0) {
        const auto fits = value.substr(0, capacity - 1);
        std::memcpy(text, fits.data(), fits.size());
        text[fits.size()] = 0;
    }
    if (capacity > value.size()) return {};
    return Error{Errc::limit_exceeded, cat("the text needs ", value.size() + 1, " bytes, not ", capacity)};
}

/// One of the enumeration's `count` values from 0.
template <class Enumeration>
Result<Enumeration> read_enumerator(int value, int count, std::string_view noun) {
    if (value < 0 || value >= count)
        return invalid(cat(value, " is not a valid ", noun, "; valid are 0 to ", count - 1));
    return static_cast<Enumeration>(value);
}

inline Result<DataType> read_type(int type) {
    if (is_data_type(type)) return static_cast<DataType>(type);
    return invalid(cat(type,
                       " is not a valid data type; valid are MUSTER_F32 (0) to MUSTER_U8 (6) and MUSTER_I8 (8) to "
                       "MUSTER_U64 (12)"));
}

inline Result<ReduceOp> read_reduce(int reduce) {
    return read_enumerator<ReduceOp>(reduce, reduce_op_count, "reduction");
}

/// No memory is larger than that, on any rank.
inline Result<void> check_count(std::size_t count, DataType type, int world) {
    if (count <= static_cast<std::size_t>(PTRDIFF_MAX) / size_of(type) / static_cast<std::size_t>(world)) return {};
    return invalid(cat(count, " elements are more than any memory holds"));
}

/// `otherwise` for 0. A longer time than a year would overflow some clock.
inline Result<Duration> read_timeout(std::int64_t milliseconds, Duration otherwise) {
    constexpr std::int64_t most = std::int64_t{366} * 24 * 3600 * 1000;
    if (milliseconds < 0 || milliseconds > most) return invalid(cat(milliseconds, " ms is not a valid timeout"));
    return milliseconds == 0 ? otherwise : std::chrono::milliseconds(milliseconds);
}

}  // namespace muster::capi
