// How a daemon and an agent prove to each other that they know the job's secret, without sending it.
//
//   agent   Hello{challenge = A}                    nothing else yet
//   daemon  Challenge{nonce = D}
//   agent   Proof{hash("agent", ..., A, D)}, and its messages
//   daemon  Challenge{proof = hash("daemon", ..., A, D)}, and its answers
//
// A and D are new for each connection, so a recorded exchange cannot be replayed. The two sides hash different words,
// so a proof cannot be sent back to its author. The daemon proves itself only to an agent that has. The hash is
// HMAC-SHA256 keyed with the "control" key of the job that Hello names (secret/job_key.h); the cores receive it as a
// function.
//
// It excludes peers that know neither the secret nor the job's key. It does not encrypt messages, nor protect a
// connection that is hijacked after the proof: that needs TLS or a protected network.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/wire/native/messages.h"

namespace muster::native {

/// A hash of the text that only those can compute who know the secret. Empty: there is no secret.
using KeyedHash = std::function<std::string(std::string_view text)>;

/// The hashes that a daemon accepts for a job, at least one; the first is the one in use, others are being replaced.
/// Empty: there is no secret.
using HashesOf = std::function<std::vector<KeyedHash>(std::string_view job)>;

enum class Prover { agent, daemon };

/// What each side puts into its proof: who it is, the job and the agent that Hello names, both nonces.
std::string proof_of(const KeyedHash& hash, Prover prover, const Hello& hello, std::string_view nonce);

/// The proof of a question between agents, and of the answer to it: of all fields but `proof` and the job, which is
/// part of the key. A question with an echo also covers the nonce of the answer that it echoes.
std::string proof_of(const KeyedHash& hash, const PeerAsk& ask, std::string_view answered_nonce);
std::string proof_of(const KeyedHash& hash, const PeerAsk& ask, const PeerAnswer& answer);

}  // namespace muster::native
