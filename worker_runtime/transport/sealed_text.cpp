#include "worker_runtime/transport/sealed_text.h"

#include <algorithm>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr std::size_t nonce_bytes = 16;
constexpr std::size_t tag_bytes = 32;

/// Hides and shows.
std::string hide(const WireSecurity& security, std::string_view nonce, std::string_view text) {
    const auto key = hmac_sha256(security.key, "muster store text");
    std::string hidden(text);
    std::string pad;
    for (std::size_t i = 0; i < hidden.size(); ++i) {
        if (i % tag_bytes == 0) pad = hmac_sha256(key, cat(nonce, i / tag_bytes));
        hidden[i] = static_cast<char>(hidden[i] ^ pad[i % tag_bytes]);
    }
    return hidden;
}

std::string tag_of(const WireSecurity& security, std::string_view place, std::string_view bytes) {
    return hmac_sha256(hmac_sha256(security.key, "muster store tag"), cat(place.size(), ' ', place, bytes));
}

}  // namespace

std::string seal_text(const WireSecurity& security, std::string_view place, std::string_view text) {
    if (security.key.empty()) return std::string(text);
    auto sealed = random_bytes(nonce_bytes);
    sealed += hide(security, sealed, text);
    return sealed + tag_of(security, place, sealed);
}

Result<std::string> open_text(const WireSecurity& security, std::string_view place, std::string_view sealed) {
    if (security.key.empty()) return std::string(sealed);
    const auto body = sealed.substr(0, sealed.size() - std::min(sealed.size(), tag_bytes));
    if (body.size() < nonce_bytes || !same_digest(sealed.substr(body.size()), tag_of(security, place, body))) {
        return Error{Errc::refused, cat("the round's store holds a value of ", place,
                                        " that no rank of this round has put there: another process writes to the "
                                        "store, or a node has another key")};
    }
    return hide(security, body.substr(0, nonce_bytes), body.substr(nonce_bytes));
}

}  // namespace muster::runtime
