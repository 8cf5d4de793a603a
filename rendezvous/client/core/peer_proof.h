// Proves the questions between the agents of a round, and their answers, where the job has a key. Pure.
//
// Without it, whoever answers "I have lost it too" in a peer's place keeps the workers of a node alive that is cut off,
// beside the next round. Each proof covers both group ranks and the question's number, so it serves no other question.
// The key is the round's: nothing said in one round counts in another one, nor in another launch.
//
// The number of an asker's questions only grows, so a recorded question is not answered again. `nonce` tells askers of
// one group rank apart.
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

    /// From now on, questions are those of this round, and this node has its group rank. Where the job has a key and
    /// the assignment no secret, nothing is believed.
    void begin(const native::Assigned& assigned);
    /// The next questions are new ones.
    void next_question() { ++number_; }
    /// Completes a question to the node of ask.group_rank. Without a key it stays as it is.
    void sign(native::PeerAsk& ask) const;
    /// True if `answer` is the answer of `group_rank` to this node's latest question, or if there is no key.
    [[nodiscard]] bool is_genuine(std::uint32_t group_rank, const native::PeerAnswer& answer) const;

    /// True if an agent of the round asks, and has not asked this before; or if there is no key. Remembers it.
    bool accept(const native::PeerAsk& ask);
    /// Completes the answer to an accepted question.
    void sign(const native::PeerAsk& ask, native::PeerAnswer& answer) const;

  private:
    PeersHash hash_of_;
    native::KeyedHash hash_;  ///< keyed for the round
    std::string nonce_;
    Round round_ = no_round;
    std::uint32_t group_rank_ = 0;
    std::uint64_t number_ = 0;
    std::map<std::string, std::uint64_t> heard_;  ///< the newest question of each asker, by its nonce and group rank
};

}  // namespace muster::rendezvous
