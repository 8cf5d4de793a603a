// Checks proofs of the job's secret, and limits wrong proofs per address. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

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

    /// `hash` empty: there is no secret, and everybody is let in. `seed`: bytes that nobody can guess.
    Gate(native::KeyedHash hash, std::string seed) : hash_(std::move(hash)), seed_(std::move(seed)) {}

    [[nodiscard]] bool is_locked() const { return static_cast<bool>(hash_); }
    /// A challenge for a new connection; never the same twice.
    std::string nonce();
    [[nodiscard]] bool is_right(const native::Hello& hello, std::string_view nonce, std::string_view proof) const;
    /// The daemon's own.
    [[nodiscard]] std::string proof(const native::Hello& hello, std::string_view nonce) const;

    /// A wrong proof came from there.
    void note_wrong(const std::string& source, Instant now);
    [[nodiscard]] bool is_shut_for(const std::string& source, Instant now) const;

  private:
    struct Source {
        std::uint32_t wrong_count = 0;
        Instant since;
    };

    native::KeyedHash hash_;
    std::string seed_;
    std::uint64_t nonce_count_ = 0;
    std::map<std::string, Source> sources_;
};

}  // namespace muster::rendezvous
