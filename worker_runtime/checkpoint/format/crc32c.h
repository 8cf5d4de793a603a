// CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and many storage systems: RFC 3720, appendix B.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::runtime {

/// Of `bytes` behind data whose checksum is `before` (0 for none): crc32c("123456789") is 0xE3069283. About 20 GB/s
/// where the processor has the instruction (SSE 4.2), 0.4 GB/s elsewhere.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// Of A and B one behind the other, from the checksum of each and the size of B.
std::uint32_t crc32c_combine(std::uint32_t a, std::uint32_t b, std::uint64_t b_bytes);

namespace detail {
/// What crc32c() uses where the processor has no instruction for it.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before);
}  // namespace detail

}  // namespace muster::runtime
