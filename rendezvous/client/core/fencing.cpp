#include "rendezvous/client/core/fencing.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

/// Questions under way to one member: those of a timeout, at the pace of the deepest tree of 20,000.
constexpr std::size_t under_way_max = 4;

}  // namespace

void Fencing::watch(const native::Assigned& assigned) {
    watched_.emplace();
    watched_->round = assigned.round;
    watched_->world = assigned.group_world_size;
}

void Fencing::set_peers(const native::Peers& peers) {
    auto place = peers.place;
    place.fan_out = config_.fan_out;
    if (!watched_ || peers.round != watched_->round || place.size > native::peers_max || place.position >= place.size)
        return;
    auto& watched = *watched_;
    watched.world = place.size;  // without nodes that succeeded and left
    watched.place = place;
    watched.above = peers.above;
    watched.ways = {};
    watched.is_parent_silent = false;
    watched.below.emplace(place, ask_timeout() + 2 * pace(place));
}

/// The words of one member pass up and down through as many others as the tree is deep. So that the oldest promise is
/// young enough at the last one, all waits together are 0.12 lease; the rest of the 0.25 lease is for the network.
Duration Fencing::pace(const native::TreePlace& place) const {
    return config_.lease * 6 / 100 / std::max<std::uint32_t>(place.depth(), 1);
}

bool Fencing::is_open(std::size_t way) const {
    const auto& above = watched_->above;
    if (way >= above.size() || above[way].port == 0) return false;
    return way == 0 || watched_->is_parent_silent || above[0].port == 0;
}

/// no_deadline: an outcome comes before.
Instant Fencing::next_question(const Way& way) const {
    if (way.under_way.size() >= under_way_max) return no_deadline;
    return way.asked_at == Instant::min() ? way.asked_at : way.asked_at + pace(*watched_->place);
}

void Fencing::ask(FencingStep& step, bool lost, Instant now) {
    auto& watched = *watched_;
    const auto below = watched.below->covered(now);
    for (std::size_t i = 0; i < watched.above.size(); ++i) {
        auto& way = watched.ways[i];
        if (!is_open(i) || (lost && now < next_question(way))) continue;
        way.asked_at = now;
        way.under_way.push_back({++number_, now});
        native::PeerAsk ask;
        ask.group_rank = watched.above[i].group_rank;
        ask.asker = watched.place->position;
        ask.tree_size = watched.place->size;
        ask.lost = lost;
        ask.number = number_;
        if (lost && below.children != 0) {
            ask.covered = below.children;
            ask.age_ns = std::max<Duration>(now - below.oldest, 0ns).count();
        }
        if (way.answered != 0) {
            ask.echo = way.answered;
            ask.held_ns = (now - way.answered_at).count();
        }
        step.ask.push_back({watched.above[i], std::move(ask), way.nonce});
    }
}

void Fencing::answered(std::uint64_t number, const std::optional<native::PeerAnswer>& answer, Instant now) {
    if (!watched_) return;
    auto& watched = *watched_;
    for (auto& way : watched.ways) {
        const auto found = std::ranges::find(way.under_way, number, &Asked::number);
        if (found == way.under_way.end()) continue;  // also where it was asked at a former place in the tree
        const auto asked = *found;
        way.under_way.erase(found);
        const bool is_news = number > way.answered;
        if (&way == watched.ways.data() && is_news) watched.is_parent_silent = !answer;
        if (!answer) return;
        if (answer->round != watched.round || !answer->leader_lost) {
            watched.contradicted = true;
            return;
        }
        if (is_news) {
            way.answered = number;
            way.answered_at = now;
            way.nonce = answer->nonce;
        }
        if (answer->all_age_ns < 0 || std::chrono::nanoseconds(answer->all_age_ns) > config_.lease) return;
        watched.agreed_at = std::max(watched.agreed_at, asked.at - std::chrono::nanoseconds(answer->all_age_ns));
        watched.contradicted = false;
        return;
    }
}

void Fencing::note_root_agreement(Instant now) {
    auto& watched = *watched_;
    if (!watched.place || watched.place->position != 0 || watched.world == 1) return;
    if (const auto below = watched.below->covered(now); below.is_all)
        watched.agreed_at = std::max(watched.agreed_at, below.oldest);
}

std::int64_t Fencing::asked(const native::PeerAsk& ask, bool lost, Instant now) {
    if (!watched_ || !watched_->place || ask.tree_size != watched_->world) return -1;
    watched_->below->asked(ask, now);
    note_root_agreement(now);
    watched_->below->answered(ask, now);
    if (!lost || watched_->agreed_at == Instant::min() || now >= watched_->agreed_at + agreement_lasts()) return -1;
    return std::max<Duration>(now - watched_->agreed_at, 0ns).count();
}

Instant Fencing::fence_at(Instant heard_until) const {
    const auto without_agreement = heard_until + config_.lease * 88 / 100;
    if (watched_->agreed_at == Instant::min()) return without_agreement;
    return std::max(without_agreement, watched_->agreed_at + agreement_lasts());
}

FencingStep Fencing::step(Instant heard_until, Instant now) {
    FencingStep step;
    if (!watched_) return step;
    auto& watched = *watched_;
    if (now >= lost_at(heard_until)) {
        step.lost = true;
        if (!watched.fenced) step.fenced = cat("no answer from the rendezvous for ", describe(now - heard_until));
        watched_.reset();
        return step;
    }
    if (watched.fenced) return step;
    if (!config_.is_alone && now >= heard_until + config_.lost_timeout) {
        watched.fenced = true;
        step.fenced = cat("no answer from the rendezvous for ", describe(now - heard_until));
        return step;
    }
    if (watched.world == 1) return step;  // no round without this node is possible
    if (now < heard_until + lost_after()) {
        watched.contradicted = false;
        // Those above find the daemon sooner when they hear that it is back.
        if (std::exchange(watched.has_asked, false)) ask(step, false, now);
        return step;
    }
    if (now >= fence_at(heard_until)) {
        watched.fenced = true;
        step.fenced = cat("no answer from the rendezvous for ", describe(now - heard_until),
                          watched.contradicted ? ", while another node of the round still reaches it"
                                               : ", and not all other nodes of the round have lost it too");
        return step;
    }
    if (!watched.place || now < heard_until + ask_after()) return step;
    watched.has_asked = true;
    ask(step, true, now);
    return step;
}

bool Fencing::may_feed(Instant heard_until, Instant now) const {
    if (config_.is_alone) return false;
    if (!watched_) return true;
    if (now >= heard_until + config_.lost_timeout - config_.lease * 7 / 10) return false;
    if (watched_->world == 1 || now < heard_until + config_.lease * 3 / 10) return true;
    return watched_->agreed_at != Instant::min() && now < watched_->agreed_at + agreement_lasts();
}

Instant Fencing::deadline(Instant heard_until) const {
    if (!watched_) return no_deadline;
    const auto lost = lost_at(heard_until);
    if (watched_->fenced || config_.is_alone) return lost;
    auto first = heard_until + config_.lost_timeout;
    if (watched_->world == 1) return first;
    first = std::min(first, fence_at(heard_until));
    for (std::size_t i = 0; watched_->place && i < watched_->above.size(); ++i)
        if (is_open(i)) first = std::min(first, std::max(heard_until + ask_after(), next_question(watched_->ways[i])));
    return first;
}

}  // namespace muster::rendezvous
