#include "rendezvous/secret/job_secret.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cerrno>

#include "rendezvous/base/check.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t hash_bytes = 32;

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

}  // namespace muster::rendezvous
