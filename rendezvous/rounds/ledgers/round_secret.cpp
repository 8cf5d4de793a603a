#include "rendezvous/rounds/ledgers/round_secret.h"

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

std::string bytes_of(const native::KeyedHash& hash, const std::string& salt) {
    return hash(cat("muster round secret ", salt));
}

std::string mark_of(const native::KeyedHash& hash, const std::string& salt) {
    return hash(cat("muster round mark ", salt));
}

}  // namespace

RoundSecret RoundSecret::draw(const std::vector<native::KeyedHash>& hashes, std::string_view unguessable) {
    const auto& hash = hashes.front();
    auto salt = hash(cat("muster round salt ", unguessable));
    return {.bytes = bytes_of(hash, salt), .salt = salt, .mark = mark_of(hash, salt)};
}

void RoundSecret::find_again(const std::vector<native::KeyedHash>& hashes) {
    for (const auto& hash : hashes)
        if (!salt.empty() && same_digest(mark_of(hash, salt), mark)) bytes = bytes_of(hash, salt);
}

}  // namespace muster::rendezvous
