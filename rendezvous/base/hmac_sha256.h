// HMAC-SHA256 (RFC 2104 over FIPS 180-4). It is here, and not OpenSSL's, because the worker runtime uses it too: a
// training process may have another OpenSSL loaded, and libmuster.so needs nothing but the C library.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// The 32 bytes of HMAC-SHA256 of `text`, keyed with `key`. Keys and texts of any length.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Compares two digests in a time that does not depend on where they differ. False for empty ones.
bool same_digest(std::string_view one, std::string_view other);

/// `count` random bytes that nobody can guess.
std::string random_bytes(std::size_t count);

/// Two digits a byte.
std::string hexadecimal(std::string_view bytes);

}  // namespace muster
