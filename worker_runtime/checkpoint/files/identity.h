// The identity of a checkpoint directory: the file IDENTITY has a unique word. Parts in agents' memory and on hosts'
// own disks carry this word. So parts of a directory that has been emptied or replaced since are recognised and
// ignored.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/files/directory_claim.h"

namespace muster::runtime {

/// Returns 16 hexadecimal digits, or an empty string if the file is missing or malformed.
std::string identity_of(const std::string& directory);

/// As identity_of(), but creates and flushes a new identity if there is none. It also does so if LATEST exists but no
/// checkpoint: a user has removed them to start over. Errors: refused (the directory has another claimant now), io.
Result<std::string> keep_identity(const std::string& directory, DirectoryClaim& claim);

/// Returns the word that parts of its checkpoints carry, for example "4f1d2c3b-5eed1234cafe4321": a checksum of the
/// path, because a copied directory has the same identity, and the identity. Without an identity, the checksum alone.
std::string directory_word(const std::string& directory, const std::string& identity);

}  // namespace muster::runtime
