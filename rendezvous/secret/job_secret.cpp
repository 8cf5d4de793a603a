#include "rendezvous/secret/job_secret.h"

#include <utility>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/system/private_file.h"

namespace muster::rendezvous {

native::KeyedHash keyed_hash(std::string key) {
    return [key = std::move(key)](std::string_view text) { return hmac_sha256(key, text); };
}

std::string random_nonce() {
    return random_bytes(32);
}

Result<native::KeyedHash> read_job_secret(const std::string& path) {
    if (path.empty()) return native::KeyedHash{};
    auto secret =
        read_private_file(path, "the secret's file", "write 32 random bytes into it: head -c 32 /dev/urandom | base64");
    if (!secret) return secret.error();
    return keyed_hash(*std::move(secret));
}

}  // namespace muster::rendezvous
