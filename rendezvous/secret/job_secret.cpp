#include "rendezvous/secret/job_secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <memory>

#include "rendezvous/base/check.h"
#include "rendezvous/base/system/private_file.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t hash_bytes = 32;

/// Overwritten when it ends.
struct Key {
    std::string bytes;
    explicit Key(std::string given) : bytes(std::move(given)) {}
    ~Key() { ::OPENSSL_cleanse(bytes.data(), bytes.size()); }
    Key(const Key&) = delete;
    Key& operator=(const Key&) = delete;
};

}  // namespace

native::KeyedHash keyed_hash(std::string key) {
    // Copies of the function share the one key.
    return [kept = std::make_shared<const Key>(std::move(key))](std::string_view text) {
        const auto& key = kept->bytes;
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

Result<native::KeyedHash> read_job_secret(const std::string& path) {
    if (path.empty()) return native::KeyedHash{};
    auto secret =
        read_private_file(path, "the secret's file", "write 32 random bytes into it: head -c 32 /dev/urandom | base64");
    if (!secret) return secret.error();
    return keyed_hash(*std::move(secret));
}

}  // namespace muster::rendezvous
