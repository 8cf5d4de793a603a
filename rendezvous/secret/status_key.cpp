#include "rendezvous/secret/status_key.h"

#include "rendezvous/base/hmac_sha256.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t identity_digits = 16;

}  // namespace

ControlKey status_key(const JobKey& key) {
    return {.identity = hexadecimal(derived_key(key, "status tls identity")).substr(0, identity_digits),
            .key = derived_key(key, "status tls")};
}

bool is_status_identity(std::string_view identity) {
    return identity.size() == identity_digits;
}

std::string find_status_key(const JobKeys& accepted, std::string_view identity) {
    for (const auto& key : accepted({}))
        if (auto own = status_key(key); own.identity == identity) return own.key;
    return {};
}

}  // namespace muster::rendezvous
