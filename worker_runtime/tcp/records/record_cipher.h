// One direction of an encrypted connection: the record protection of TLS 1.3 (RFC 8446, 5.2 and 5.3) with AES-256-GCM.
// A record is its header (type, version, length), which is authenticated, the encrypted bytes with one byte for their
// type, and a tag of 16 bytes. The nonce is the direction's own start value and the number of the record, so a record
// that is left out, repeated or moved is refused, and no nonce is used twice with one key. After records_per_key
// records both ends go on to the next key, far below the limit of AES-GCM.
//
// AES comes from OpenSSL's libcrypto, opened when the first connection needs it: libmuster.so does not link it, and a
// training process may have one of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster::runtime {

inline constexpr std::size_t record_header_bytes = 5;
inline constexpr std::size_t record_data_bytes_max = 16384;
/// Of a record, beyond its data.
inline constexpr std::size_t record_overhead_bytes = record_header_bytes + 1 + 16;
/// 64 GiB in full records. RFC 8446 (5.5) allows 2^24.5.
inline constexpr std::uint64_t records_per_key = std::uint64_t{1} << 22;

/// unsupported: there is no libcrypto on this host, with what to do.
Result<void> find_cipher();

class RecordCipher {
  public:
    enum class Use { seal, open };
    /// `secret`: 32 bytes for this connection and direction alone. find_cipher() has succeeded.
    RecordCipher(Use use, std::string secret, std::uint64_t records_each = records_per_key);
    ~RecordCipher();
    RecordCipher& operator=(RecordCipher&&) = delete;

    /// Writes the record of `data` (the parts one after another, record_data_bytes_max at most in all) to `record`, and
    /// returns its size: record_overhead_bytes more than the data.
    std::size_t seal(std::span<const std::span<const std::byte>> data, std::byte* record);
    /// Bytes of a record behind its header, or 0 where the header is none.
    static std::size_t body_bytes(std::span<const std::byte, record_header_bytes> header);
    /// Writes the data of a whole record to `data`, which has room for it: record_overhead_bytes less than the record.
    /// False: the record is not the next one that the other end sealed, and `data` holds nothing of use.
    bool open(std::span<const std::byte> record, std::byte* data);

  private:
    void set_key();
    std::array<unsigned char, 12> next_nonce();
    void begin(const std::byte* header);

    const Use use_;
    const std::uint64_t records_each_;
    std::string secret_;
    std::array<unsigned char, 12> start_{};
    std::uint64_t number_ = 0;
    std::unique_ptr<void, void (*)(void*)> context_;
};

}  // namespace muster::runtime
