#include "rendezvous/secret/job_secret.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cerrno>

#include "rendezvous/base/check.h"
#include "rendezvous/base/system/private_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t hash_bytes = 32;

/// Of characters: 16 random ones of a keyboard's are beyond guessing.
constexpr std::size_t secret_bytes_min = 16;

}  // namespace

native::KeyedHash keyed_hash(std::string key) {
    return [key = std::move(key)](std::string_view text) {
        std::array<unsigned char, hash_bytes> out{};
        unsigned size = 0;
        const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
        const auto* made =
            ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, text.size(), out.data(), &size);
        MUSTER_CHECK(made != nullptr && size == hash_bytes, size);
        return std::string(out.begin(), out.end());
    };
}

std::string random_nonce() {
    std::string nonce(32, '\0');
    MUSTER_CHECK(::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()), errno);
    return nonce;
}

std::string status_token(const native::KeyedHash& secret) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string token;
    for (const char c : secret("status")) {
        const auto byte = static_cast<unsigned char>(c);
        token += {digits[byte >> 4], digits[byte & 15]};
    }
    return token;
}

Result<native::KeyedHash> read_job_secret(const std::string& path) {
    if (path.empty()) return native::KeyedHash{};
    auto secret =
        read_private_file(path, "the secret's file", "write 32 random bytes into it: head -c 32 /dev/urandom | base64");
    if (!secret) return secret.error();
    if (secret->size() < secret_bytes_min)
        return Error{Errc::limit_exceeded, cat("the secret's file ", path, " holds ", secret->size(),
                                               " bytes; a secret has at least ", secret_bytes_min,
                                               ", because a false daemon can guess a short one. Make one: head -c 32 "
                                               "/dev/urandom | base64 > FILE")};
    return keyed_hash(*std::move(secret));
}

}  // namespace muster::rendezvous
