// A keyed hash, and nonces.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

/// HMAC-SHA256 with `key`, 32 bytes.
native::KeyedHash keyed_hash(std::string key);

/// 32 bytes that nobody can guess.
std::string random_nonce();

}  // namespace muster::rendezvous
