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
    group_rank_ = assigned.group_rank;
    if (assigned.round == round_ || !hash_of_) return;
    round_ = assigned.round;
    hash_ = assigned.secret.empty() ? native::KeyedHash() : hash_of_(assigned.secret);
    heard_.clear();
}

void PeerProof::sign(native::PeerAsk& ask) const {
    if (!hash_) return;
    ask.asker = group_rank_;
    ask.number = number_;
    ask.nonce = nonce_;
    ask.proof = native::proof_of(hash_, ask);
}

bool PeerProof::is_genuine(std::uint32_t group_rank, const native::PeerAnswer& answer) const {
    if (!hash_of_) return true;
    if (!hash_) return false;
    // The question as it was asked: the job's name is part of the key.
    const native::PeerAsk ask{.job = {},
                              .round = round_,
                              .group_rank = group_rank,
                              .asker = group_rank_,
                              .number = number_,
                              .nonce = nonce_,
                              .proof = {}};
    return same_digest(native::proof_of(hash_, ask, answer), answer.proof);
}

bool PeerProof::accept(const native::PeerAsk& ask) {
    if (!hash_of_) return true;
    if (!hash_ || ask.round != round_ || !same_digest(native::proof_of(hash_, ask), ask.proof)) return false;
    auto& newest = heard_[cat(ask.asker, ' ', ask.nonce)];
    if (ask.number <= newest) return false;
    newest = ask.number;
    // Only recordings of earlier runs can be so many. What is forgotten may be asked once more.
    if (heard_.size() > native::peers_max) heard_.clear();
    return true;
}

void PeerProof::sign(const native::PeerAsk& ask, native::PeerAnswer& answer) const {
    if (hash_) answer.proof = native::proof_of(hash_, ask, answer);
}

}  // namespace muster::rendezvous
