// Checks proofs of a job's secret, and limits wrong proofs per address. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

class Gate {
  public:
    /// After so many wrong proofs from one address within `memory` nobody from there is answered for its rest.
    static constexpr std::uint32_t wrong_max = 10;
    static constexpr Duration memory = 10s;
    /// Addresses that are remembered; beyond it the oldest is forgotten.
    static constexpr std::size_t sources_max = 1000;

    /// What a connection has to prove.
    struct Question {
        std::string nonce;
        std::vector<native::KeyedHash> hashes;  ///< that are accepted
    };

    /// `hashes` empty: there is no secret, and everybody is let in. `seed`: bytes that nobody can guess.
    Gate(native::HashesOf hashes, std::string seed) : hashes_(std::move(hashes)), seed_(std::move(seed)) {}

    [[nodiscard]] bool is_locked() const { return static_cast<bool>(hashes_); }
    /// Why `who`, the sender of this Hello, cannot be asked for a proof; empty: it can. `is_private`: nobody else can
    /// read its connection.
    [[nodiscard]] std::string objection(const std::string& who, const native::Hello& hello, bool is_private) const;
    /// For a new connection; the nonce is never the same twice.
    Question ask(std::string_view job);
    /// The daemon's own proof, with the hash that the agent's has; nothing if the agent's is wrong.
    [[nodiscard]] static std::optional<std::string> answer(const Question& asked, const native::Hello& hello,
                                                           std::string_view proof);

    /// A wrong proof came from there.
    void note_wrong(const std::string& source, Instant now);
    [[nodiscard]] bool is_shut_for(const std::string& source, Instant now) const;

  private:
    struct Source {
        std::uint32_t wrong_count = 0;
        Instant since;
    };

    native::HashesOf hashes_;
    std::string seed_;
    std::uint64_t nonce_count_ = 0;
    std::map<std::string, Source> sources_;
};

/// What `who`, the sender of this Hello, is told of its wrong proof.
std::string wrong_proof(const std::string& who, const native::Hello& hello);

}  // namespace muster::rendezvous
