// Proves the questions between the agents of a round, and their answers, where the job has a key. Pure.
//
// Without it, whoever says "I have lost it too" in a peer's place keeps the workers of a node alive that is cut off,
// beside the next round. Each proof covers all that is said, so it serves no other question. The key is the round's:
// nothing said in one round counts in another one, nor in another launch.
//
// The number of an asker's questions only grows, so a recorded question does not count again. `nonce` tells askers of
// one position apart. The proof of a question also covers the nonce of the answer that it echoes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "rendezvous/wire/native/messages.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

/// The hash for the questions of a round, from what its nodes share (Assigned::secret). Empty: the job has no key.
using PeersHash = std::function<native::KeyedHash(const std::string& round_secret)>;

class PeerProof {
  public:
    /// `seed`: random bytes of this agent.
    PeerProof(PeersHash hash_of, const std::string& seed);

    /// From now on, questions are those of this round. Where the job has a key and the assignment no secret, nothing is
    /// believed.
    void begin(const native::Assigned& assigned);
    /// Completes a question. `answered_nonce`: of the answer that it echoes; empty: none. Without a key it stays as it
    /// is.
    void sign(native::PeerAsk& ask, std::string_view answered_nonce) const;
    /// True if `answer` answers `ask`, a question of this node; or if there is no key.
    [[nodiscard]] bool is_genuine(const native::PeerAsk& ask, const native::PeerAnswer& answer) const;

    /// True if an agent of the round asks, and has not asked this before; or if there is no key. Remembers it.
    bool accept(const native::PeerAsk& ask);
    /// Completes the answer to an accepted question.
    void sign(const native::PeerAsk& ask, native::PeerAnswer& answer) const;

  private:
    PeersHash hash_of_;
    native::KeyedHash hash_;  ///< keyed for the round
    std::string nonce_;
    Round round_ = no_round;
    std::map<std::string, std::uint64_t> heard_;  ///< the newest question of each asker, by its nonce and position
};

}  // namespace muster::rendezvous
