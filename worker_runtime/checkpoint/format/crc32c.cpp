#include "worker_runtime/checkpoint/format/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace muster::runtime {

namespace {

/// The polynomial with its bits reversed: bit 31 is x^0.
constexpr std::uint32_t polynomial = 0x82F63B78;

constexpr std::uint32_t times_x(std::uint32_t a) {
    return (a & 1) != 0 ? (a >> 1) ^ polynomial : a >> 1;
}

/// a * b modulo the polynomial.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 1U << 31; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) product ^= b;
        b = times_x(b);
    }
    return product;
}

/// x^(2^i) for each i. The powers repeat after i = 31, as 2^32 - 1 is a multiple of x's order.
constexpr auto squares = [] {
    std::array<std::uint32_t, 32> powers{};
    powers[0] = 1U << 30;
    for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = multiply(powers[i - 1], powers[i - 1]);
    return powers;
}();

/// Returns x^(8 * bytes): appending that many zero bytes multiplies the checksum's register by it.
constexpr std::uint32_t shift_of(std::uint64_t bytes) {
    std::uint32_t power = 1U << 31;
    for (std::size_t i = 3; bytes != 0; bytes >>= 1, ++i) {
        if ((bytes & 1) != 0) power = multiply(power, squares[i % squares.size()]);
    }
    return power;
}

constexpr auto table = [] {
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t entry = i;
        for (int bit = 0; bit < 8; ++bit) entry = times_x(entry);
        entries[i] = entry;
    }
    return entries;
}();

#if defined(__x86_64__)

/// The instruction takes three cycles and one can start in each cycle, so three parts are summed in parallel. Long
/// parts make the cost of combining them negligible.
constexpr std::size_t part_bytes = 16u << 10;
constexpr std::uint32_t one_part = shift_of(part_bytes), two_parts = shift_of(2 * part_bytes);

std::uint64_t word_at(const std::byte* from) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse(std::span<const std::byte> bytes, std::uint32_t before) {
    std::uint64_t sum = ~before;
    const std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 3 * part_bytes; left -= 3 * part_bytes, at += 3 * part_bytes) {
        std::uint64_t second = 0, third = 0;
        for (std::size_t i = 0; i < part_bytes; i += sizeof(std::uint64_t)) {
            sum = _mm_crc32_u64(sum, word_at(at + i));
            second = _mm_crc32_u64(second, word_at(at + part_bytes + i));
            third = _mm_crc32_u64(third, word_at(at + 2 * part_bytes + i));
        }
        sum = multiply(static_cast<std::uint32_t>(sum), two_parts) ^
              multiply(static_cast<std::uint32_t>(second), one_part) ^ third;
    }
    for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t), at += sizeof(std::uint64_t)) {
        sum = _mm_crc32_u64(sum, word_at(at));
    }
    auto rest = static_cast<std::uint32_t>(sum);
    for (; left > 0; --left, ++at) rest = _mm_crc32_u8(rest, std::to_integer<unsigned char>(*at));
    return ~rest;
}

#endif

}  // namespace

std::uint32_t detail::crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before) {
    std::uint32_t sum = ~before;
    for (const auto byte : bytes) sum = (sum >> 8) ^ table[(sum ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
    return ~sum;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
    static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) return crc32c_sse(bytes, before);
#endif
    return detail::crc32c_portable(bytes, before);
}

std::uint32_t crc32c_combine(std::uint32_t a, std::uint32_t b, std::uint64_t b_bytes) {
    // The inversions at the beginning and at the end cancel out.
    return multiply(a, shift_of(b_bytes)) ^ b;
}

}  // namespace muster::runtime
