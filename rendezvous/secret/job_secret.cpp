#include "rendezvous/secret/job_secret.h"

#include <string.h>

#include <memory>
#include <utility>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/system/private_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

/// Of characters: 16 random ones of a keyboard's are beyond guessing.
constexpr std::size_t secret_bytes_min = 16;

/// Overwritten when it ends.
struct Key {
    std::string bytes;
    explicit Key(std::string given) : bytes(std::move(given)) {}
    ~Key() { ::explicit_bzero(bytes.data(), bytes.size()); }
    Key(const Key&) = delete;
    Key& operator=(const Key&) = delete;
};

}  // namespace

native::KeyedHash keyed_hash(std::string key) {
    // Copies of the function share the one key.
    return [kept = std::make_shared<const Key>(std::move(key))](std::string_view text) {
        return hmac_sha256(kept->bytes, text);
    };
}

std::string random_nonce() {
    return random_bytes(32);
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
