// What is made of a job's secret.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

/// HMAC-SHA256 with `key`, 32 bytes.
native::KeyedHash keyed_hash(std::string key);

/// The bearer token of the status pages: the hash of "status" in hexadecimal.
std::string status_token(const native::KeyedHash& secret);

/// 32 bytes that nobody can guess.
std::string random_nonce();

}  // namespace muster::rendezvous
