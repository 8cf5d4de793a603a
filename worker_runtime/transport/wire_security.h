// How the ranks of a round know each other, and who can read what they send.
#pragma once

#include <string.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::runtime {

enum class WireMode : std::uint8_t {
    tokens = 0,     ///< The ranks have no key: whoever reads the round's store can pass for a rank.
    key = 1,        ///< Every connection begins with proofs that need the key. Its data is in clear text.
    encrypted = 2,  ///< Proofs as above, and TCP between ranks carries records that are encrypted and authenticated.
};

struct WireSecurity {
    std::string key{};  ///< 32 bytes that the agents gave the ranks of this round and nobody else. Empty: none.
    bool encrypts = false;

    ~WireSecurity() { ::explicit_bzero(key.data(), key.size()); }

    [[nodiscard]] WireMode mode() const {
        if (key.empty()) return WireMode::tokens;
        return encrypts ? WireMode::encrypted : WireMode::key;
    }
};

/// For messages: "no key", "--wire-security auth".
inline std::string_view name_of(WireMode mode) {
    switch (mode) {
        case WireMode::tokens: return "no key";
        case WireMode::key: return "--wire-security auth";
        case WireMode::encrypted: return "--wire-security encrypt";
    }
    return "an unknown --wire-security";
}

}  // namespace muster::runtime
