// What ranks publish in the round's store for each other only: encrypted and authenticated with the key of the ranks,
// without a library, because it is short. HMAC-SHA256 of a new nonce and a counter gives the bytes that hide the text,
// and HMAC-SHA256 under another key goes over nonce, place and hidden text.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "worker_runtime/transport/wire_security.h"

namespace muster::runtime {

/// `place`: the key in the store; a text that is moved to another one is refused there. The text itself where the ranks
/// have no key.
std::string seal_text(const WireSecurity& security, std::string_view place, std::string_view text);

/// refused: no rank of this round sealed it for this place.
Result<std::string> open_text(const WireSecurity& security, std::string_view place, std::string_view sealed);

}  // namespace muster::runtime
