// The secret of a job: read from a file, and what is made of it.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

/// Reads the file and gives the hash that is keyed with its content (without the line end behind it); an empty path
/// gives an empty function: no secret. Refused, with a sentence that says what to do: a file that cannot be read, that
/// others than its owner may read or write (its mode must be 0600 or stricter), that belongs to neither this user nor
/// root, that has fewer than 16 bytes or more than 4 KiB.
Result<native::KeyedHash> read_job_secret(const std::string& path);

/// HMAC-SHA256 with `key`, 32 bytes.
native::KeyedHash keyed_hash(std::string key);

/// The bearer token of the status pages: the hash of "status" in hexadecimal.
std::string status_token(const native::KeyedHash& secret);

/// 32 bytes that nobody can guess.
std::string random_nonce();

}  // namespace muster::rendezvous
