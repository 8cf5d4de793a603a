// The operations of PyTorch's TCPStore and their numbers in both protocol families (C10D.md has the bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace muster::c10d {

/// Newer: PyTorch 2.1 and later, opens with VALIDATE. Older: 1.9 to 2.0, no handshake, other numbers.
enum class Family : std::uint8_t { newer, older };

/// The value is the number in the newer family.
enum class Operation : std::uint8_t {
    validate = 0,
    set = 1,
    compare_set = 2,
    get = 3,
    add = 4,
    check = 5,
    wait = 6,
    num_keys = 7,
    delete_key = 8,
    append = 9,
    multi_get = 10,
    multi_set = 11,
    cancel_wait = 12,
    ping = 13,
    queue_push = 14,
    queue_pop = 15,
    queue_len = 16,
    list_keys = 17,
    barrier = 18,
    /// Ours: waits for all keys, then answers as WAIT and MULTI_GET would, in one trip. PyTorch appends its numbers one
    /// by one, so it will not meet this one for long.
    wait_get = 0x80,
    /// Only in the older family (7): ask to be told of changes. Acknowledged; no change is ever pushed.
    watch_key = 0xff,
};

/// The u32 after VALIDATE.
inline constexpr std::uint32_t handshake_magic = 0x3C85F7CE;

/// A wire key that exists on our server alone and only for CHECK, so that a client can tell what it talks to without
/// risking its connection. User keys begin with '/', so no user meets it.
inline constexpr std::string_view probe_key = "muster/wait_get";

/// May a c10d connection begin with this byte? Other dialects on the same port use other bytes.
constexpr bool is_first_byte(unsigned char byte) {
    return byte <= 8;
}

/// The operation behind a number, or nothing.
constexpr std::optional<Operation> operation_from_byte(Family family, std::uint8_t byte) {
    if (family == Family::newer) {
        if (byte <= 18 || byte == 0x80) return static_cast<Operation>(byte);
        return std::nullopt;
    }
    if (byte <= 6) return static_cast<Operation>(byte + 1);
    if (byte == 7) return Operation::watch_key;
    if (byte == 8) return Operation::delete_key;
    return std::nullopt;
}

/// The number of an operation, or nothing where the family does not have it.
constexpr std::optional<std::uint8_t> byte_of(Family family, Operation operation) {
    const auto number = static_cast<std::uint8_t>(operation);
    if (family == Family::newer) {
        if (operation == Operation::watch_key) return std::nullopt;
        return number;
    }
    if (operation == Operation::watch_key) return std::uint8_t{7};
    if (operation == Operation::delete_key) return std::uint8_t{8};
    if (number >= 1 && number <= 7) return static_cast<std::uint8_t>(number - 1);
    return std::nullopt;
}

/// "SET", "COMPARE_SET" ...: for logs and errors.
std::string_view name(Operation operation);

}  // namespace muster::c10d
