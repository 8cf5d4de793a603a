// How a daemon and an agent show each other that they know the job's secret, without saying it.
//
//   agent   Hello{challenge = A}                    nothing else yet
//   daemon  Challenge{nonce = D}
//   agent   Proof{hash("agent", ..., A, D)}, and what it has to say
//   daemon  Challenge{proof = hash("daemon", ..., A, D)}, and its answers
//
// A and D are new for each connection, so that what was overheard once is of no use on another; the two sides hash
// different words, so that nobody can hand one side its own proof; the daemon shows its proof only to whoever has shown
// his. The hash is HMAC-SHA256 keyed with the secret (secret/job_secret.h); the cores are given it as a function.
//
// It keeps out who does not know the secret. It does not hide what is said, nor protect a connection that somebody on
// the way takes over after the proof: that is TLS's, or the network's.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/wire/native/messages.h"

namespace muster::native {

/// A hash of the text that only those can compute who know the secret. Empty: there is no secret.
using KeyedHash = std::function<std::string(std::string_view text)>;

enum class Prover { agent, daemon };

/// What each side puts into its proof: who it is, the job and the agent that Hello names, both nonces.
std::string proof_of(const KeyedHash& hash, Prover prover, const Hello& hello, std::string_view nonce);

}  // namespace muster::native
