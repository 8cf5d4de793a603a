#include "rendezvous/client/core/fencing.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

void Fencing::watch(const native::Assigned& assigned) {
    watched_.emplace();
    watched_->round = assigned.round;
    watched_->group_rank = assigned.group_rank;
    watched_->world = assigned.group_world_size;
}

void Fencing::set_peers(const native::Peers& peers) {
    if (!watched_ || peers.round != watched_->round) return;
    watched_->others.clear();
    watched_->world = static_cast<std::uint32_t>(peers.peers.size());  // without nodes that succeeded and left
    for (const auto& peer : peers.peers)
        if (peer.group_rank != watched_->group_rank) watched_->others.push_back(peer);
}

void Fencing::answered(std::uint32_t group_rank, const std::optional<native::PeerAnswer>& answer) {
    if (!watched_ || !watched_->lost_leader_too.contains(group_rank)) return;
    if (!answer) return;  // unreachable; only a complete set of answers counts
    if (answer->round != watched_->round || !answer->leader_lost) {
        watched_->contradicted = true;
        return;
    }
    watched_->lost_leader_too[group_rank] = true;
    const bool all = watched_->lost_leader_too.size() + 1 == watched_->world &&
                     std::all_of(watched_->lost_leader_too.begin(), watched_->lost_leader_too.end(),
                                 [](const auto& said) { return said.second; });
    if (!all) return;
    watched_->agreed_at = watched_->asked_at;
    watched_->contradicted = false;
}

void Fencing::ask(FencingStep& step, Instant now) {
    auto& watched = *watched_;
    watched.asked_at = now;
    watched.lost_leader_too.clear();
    for (const auto& peer : watched.others) watched.lost_leader_too.emplace(peer.group_rank, false);
    for (const auto& peer : watched.others)
        if (peer.port != 0) step.ask.push_back(peer);
}

Instant Fencing::fence_at(Instant heard_until) const {
    const auto without_agreement = heard_until + config_.lease * 88 / 100;
    if (watched_->agreed_at == Instant::min()) return without_agreement;
    return std::max(without_agreement, watched_->agreed_at + config_.lease / 4);
}

FencingStep Fencing::step(Instant heard_until, Instant now) {
    FencingStep step;
    if (!watched_) return step;
    auto& watched = *watched_;
    if (now >= heard_until + config_.lost_timeout) {
        step.lost = true;
        if (!watched.fenced) step.fenced = cat("no answer from the rendezvous for ", describe(now - heard_until));
        watched_.reset();
        return step;
    }
    if (watched.fenced) return step;
    if (watched.world == 1) return step;  // no round without this node is possible
    if (now < heard_until + config_.lease * 6 / 10) {
        watched.agreed_at = Instant::min();
        watched.contradicted = false;
        watched.asked_at = Instant::min();
        watched.lost_leader_too.clear();
        return step;
    }
    if (now >= fence_at(heard_until)) {
        watched.fenced = true;
        step.fenced = cat("no answer from the rendezvous for ", describe(now - heard_until),
                          watched.contradicted ? ", while another node of the round still reaches it"
                                               : ", and not all other nodes of the round have lost it too");
        return step;
    }
    if (watched.asked_at == Instant::min() || now >= watched.asked_at + config_.lease / 10) ask(step, now);
    return step;
}

bool Fencing::may_feed(Instant heard_until, Instant now) const {
    if (!watched_) return true;
    if (now >= heard_until + config_.lost_timeout - config_.lease * 7 / 10) return false;
    if (watched_->world == 1 || now < heard_until + config_.lease * 3 / 10) return true;
    return watched_->agreed_at != Instant::min() && now < watched_->agreed_at + config_.lease / 4;
}

Instant Fencing::deadline(Instant heard_until) const {
    if (!watched_) return no_deadline;
    const auto lost = heard_until + config_.lost_timeout;
    if (watched_->fenced || watched_->world == 1) return lost;
    const auto first_query = heard_until + config_.lease * 6 / 10;
    const auto question = watched_->asked_at == Instant::min()
                              ? first_query
                              : std::max(first_query, watched_->asked_at + config_.lease / 10);
    return std::min({lost, question, fence_at(heard_until)});
}

}  // namespace muster::rendezvous
