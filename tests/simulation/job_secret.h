// The job's secret of a simulated world. The hash is none to be trusted (FNV-1a); those who do not know the key get
// another one from it, and that is all that is asked of it here.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::simulation {

inline constexpr const char* job_secret = "the job's";
inline constexpr const char* other_secret = "another one";

inline native::KeyedHash hash_with(std::string key) {
    return [key = std::move(key)](std::string_view text) {
        std::uint64_t hash = 0xcbf29ce484222325u;
        for (const char c : cat(key, '\n', text)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
        return cat(hash);
    };
}

/// For the questions between agents.
inline native::KeyedHash peers_hash(const std::string& round_secret) {
    return hash_with(cat("peers ", round_secret));
}

}  // namespace muster::simulation
