#include "rendezvous/secret/job_secret.h"

#include <string.h>

#include <memory>
#include <utility>

#include "rendezvous/base/hmac_sha256.h"

namespace muster::rendezvous {

namespace {

/// Overwritten when it ends.
struct Key {
    std::string bytes;
    explicit Key(std::string given) : bytes(std::move(given)) {}
    ~Key() { ::explicit_bzero(bytes.data(), bytes.size()); }
    Key& operator=(Key&&) = delete;
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

}  // namespace muster::rendezvous
