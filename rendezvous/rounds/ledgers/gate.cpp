#include "rendezvous/rounds/ledgers/gate.h"

#include <algorithm>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

std::string Gate::nonce() {
    return hash_(cat("muster nonce ", ++nonce_count_, ' ', seed_));
}

bool Gate::is_right(const native::Hello& hello, std::string_view nonce, std::string_view proof) const {
    return same_digest(native::proof_of(hash_, native::Prover::agent, hello, nonce), proof);
}

std::string Gate::proof(const native::Hello& hello, std::string_view nonce) const {
    return native::proof_of(hash_, native::Prover::daemon, hello, nonce);
}

void Gate::note_wrong(const std::string& source, Instant now) {
    auto [found, added] = sources_.try_emplace(source);
    if (added || now >= found->second.since + memory) found->second = {0, now};
    ++found->second.wrong_count;
    if (sources_.size() <= sources_max) return;
    sources_.erase(std::min_element(sources_.begin(), sources_.end(),
                                    [](const auto& a, const auto& b) { return a.second.since < b.second.since; }));
}

bool Gate::is_shut_for(const std::string& source, Instant now) const {
    const auto found = sources_.find(source);
    return found != sources_.end() && found->second.wrong_count >= wrong_max && now < found->second.since + memory;
}

}  // namespace muster::rendezvous
