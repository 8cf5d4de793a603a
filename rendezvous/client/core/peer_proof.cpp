#include "rendezvous/client/core/peer_proof.h"

#include <utility>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::rendezvous {

PeerProof::PeerProof(PeersHash hash_of, const std::string& seed) : hash_of_(std::move(hash_of)) {
    if (hash_of_) nonce_ = hmac_sha256(seed, "muster asker");
}

void PeerProof::begin(const native::Assigned& assigned) {
    if (assigned.round == round_ || !hash_of_) return;
    round_ = assigned.round;
    hash_ = assigned.secret.empty() ? native::KeyedHash() : hash_of_(assigned.secret);
    heard_.clear();
}

void PeerProof::sign(native::PeerAsk& ask, std::string_view answered_nonce) const {
    if (!hash_) return;
    ask.nonce = nonce_;
    ask.proof = native::proof_of(hash_, ask, answered_nonce);
}

bool PeerProof::is_genuine(const native::PeerAsk& ask, const native::PeerAnswer& answer) const {
    if (!hash_of_) return true;
    return hash_ && same_digest(native::proof_of(hash_, ask, answer), answer.proof);
}

bool PeerProof::accept(const native::PeerAsk& ask) {
    if (!hash_of_) return true;
    const auto answered = ask.echo == 0 ? std::string_view() : std::string_view(nonce_);
    if (!hash_ || ask.round != round_ || !same_digest(native::proof_of(hash_, ask, answered), ask.proof)) return false;
    auto& newest = heard_[cat(ask.asker, ' ', ask.nonce)];
    if (ask.number <= newest) return false;
    newest = ask.number;
    // Only recordings of earlier runs can be so many. What is forgotten may be asked once more.
    if (heard_.size() > native::peers_max) heard_.clear();
    return true;
}

void PeerProof::sign(const native::PeerAsk& ask, native::PeerAnswer& answer) const {
    if (!hash_) return;
    answer.nonce = nonce_;
    answer.proof = native::proof_of(hash_, ask, answer);
}

}  // namespace muster::rendezvous
