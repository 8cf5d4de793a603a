#include "rendezvous/rounds/seen_nodes.h"

#include <algorithm>
#include <utility>

#include "rendezvous/rounds/status.h"

namespace muster::rendezvous {

namespace {

bool is_news(const native::SeenWorker& worker) {
    return worker.pace != native::WorkerPace::usual;
}

/// What is shown of one.
bool same(const native::SeenWorker& a, const native::SeenWorker& b) {
    return a.pace == b.pace && a.at.rank == b.at.rank && a.at.idle_ms == b.at.idle_ms &&
           a.at.operation == b.at.operation && a.at.place == b.at.place;
}

bool is_left_out(const Member& member) {
    return member.excluded || member.health == Health::parked;
}

}  // namespace

SeenNodes::Look SeenNodes::look_of(const Member& member, std::int64_t silent_s) {
    Look look{.place = place_name(member),
              .slots = member.join.slots,
              .role = member.join.role,
              .is_connected = member.connected(),
              .is_left_out = rendezvous::is_left_out(member),
              .health = member.health,
              .finding = member.join.unhealthy,
              .round = member.round,
              .group_rank = member.group_rank,
              .rank_base = member.rank_base,
              .silent_s = silent_s,
              .standbys = member.standbys,
              .gpus = member.gpus};
    std::ranges::copy_if(member.workers_seen, std::back_inserter(look.workers), is_news);
    return look;
}

/// Makes no copy: it is asked of every node each time.
bool SeenNodes::shows(const Look& look, const Member& member, std::int64_t silent_s) {
    if (look.silent_s != silent_s || look.is_connected != member.connected() || look.round != member.round ||
        look.group_rank != member.group_rank || look.rank_base != member.rank_base || look.health != member.health ||
        look.is_left_out != rendezvous::is_left_out(member) || look.slots != member.join.slots ||
        look.standbys != member.standbys || look.gpus != member.gpus || look.place != place_name(member) ||
        look.role != member.join.role || look.finding != member.join.unhealthy)
        return false;
    auto known = look.workers.begin();
    for (const auto& worker : member.workers_seen) {
        if (!is_news(worker)) continue;
        if (known == look.workers.end() || !same(*known, worker)) return false;
        ++known;
    }
    return known == look.workers.end();
}

std::vector<Incarnation> SeenNodes::look_at(const std::map<Incarnation, Member>& members, Instant now,
                                            Duration silence_shown, const Changed& changed) {
    std::vector<Incarnation> gone;
    auto look = looks_.begin();
    const auto drop = [&] {
        gone.push_back(look->first);
        look = looks_.erase(look);
    };
    for (const auto& [incarnation, member] : members) {
        while (look != looks_.end() && look->first < incarnation) drop();
        const auto silence = now - member.last_received;
        const auto silent_s = silence >= silence_shown ? std::int64_t{silence / 1s} : -1;
        const bool is_known = look != looks_.end() && look->first == incarnation;
        if (!is_known || !shows(look->second, member, silent_s)) {
            auto now_shown = look_of(member, silent_s);
            if (is_known)
                look->second = std::move(now_shown);
            else
                look = looks_.emplace_hint(look, incarnation, std::move(now_shown));
            changed(member, silent_s);
        }
        ++look;
    }
    while (look != looks_.end()) drop();
    return gone;
}

}  // namespace muster::rendezvous
