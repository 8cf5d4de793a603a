// Which checkpoint directory it is: the file IDENTITY has a word that no other directory has. Parts that lie elsewhere,
// in agents' memory and on hosts' own disks, carry it. So those of a directory that was emptied or replaced since then
// are known not to be its own.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/files/directory_claim.h"

namespace muster::runtime {

/// 16 hexadecimal digits; empty where there is no such file, or it does not read.
std::string identity_of(const std::string& directory);

/// The same; where there is none a new one, which survives a power cut. A new one also where LATEST is there and no
/// checkpoint is: somebody took them away to start over. refused: the directory is another's by now; io.
Result<std::string> keep_identity(const std::string& directory, DirectoryClaim& claim);

/// What parts of its checkpoints carry: "4f1d2c3b-5eed1234cafe4321", a checksum of the path, for a copied directory has
/// the identity of the first one, and the identity. Without one the checksum alone.
std::string directory_word(const std::string& directory, const std::string& identity);

}  // namespace muster::runtime
