// The job's secret of a simulated world. The hash is none to be trusted (FNV-1a); those who do not know the key get
// another one from it, and that is all that is asked of it here.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/tls/psk_context.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::simulation {

inline constexpr const char* job_secret = "the job's";
inline constexpr const char* other_secret = "another one";
inline constexpr const char* impostor_secret = "the impostor's";

inline native::KeyedHash hash_with(std::string key) {
    return [key = std::move(key)](std::string_view text) {
        std::uint64_t hash = 0xcbf29ce484222325u;
        for (const char c : cat(key, '\n', text)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
        return cat(hash);
    };
}

/// For TLS, which takes real keys.
inline rendezvous::ControlKey tls_key(const std::string& secret, std::string_view job) {
    std::string bytes = secret;
    bytes.resize(32, '.');
    return rendezvous::control_key(bytes, job);
}

/// A side that accepts connections of those who have a key made of `secret`.
inline std::shared_ptr<const rendezvous::PskContext> tls_server(const std::string& secret) {
    return rendezvous::PskContext::server([secret](std::string_view identity) {
        const auto own = tls_key(secret, rendezvous::job_of_identity(identity));
        return own.identity == identity ? own.key : std::string();
    });
}

/// For the questions between agents.
inline native::KeyedHash peers_hash(const std::string& round_secret) {
    return hash_with(cat("peers ", round_secret));
}

}  // namespace muster::simulation
