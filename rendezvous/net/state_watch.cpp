#include "rendezvous/net/state_watch.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

void StateWatch::given(Instant now) {
    if (!waiting_since_) waiting_since_ = now;
}

void StateWatch::kept(bool more, Instant now) {
    waiting_since_ = more ? std::optional(now) : std::nullopt;
    if (std::exchange(stall_, std::nullopt)) look_at_ = now;
}

void StateWatch::failed(std::string why, Instant now) {
    begin(std::move(why), now);
}

void StateWatch::begin(std::string why, Instant now) {
    const bool is_news = !stall_ || stall_->why != why;
    stall_ = Stall{std::move(why), stall_ ? stall_->since : now};
    if (is_news) look_at_ = now;
}

std::vector<SendTo> StateWatch::turn(const std::set<ConnectionId>& agents, const ActionGate& gate, Instant now) {
    if (!stall_ && waiting_since_ && now >= *waiting_since_ + slow_after)
        begin(cat("no write has finished for ", describe(slow_after), "; its disk, or its etcd, is slow or hangs"),
              now);
    if (now < look_at_) return {};
    look_at_ = stall_ ? now + poll_interval : no_deadline;
    const auto undecided = stall_ ? gate.undecided() : std::set<ConnectionId>{};
    std::vector<SendTo> words;
    const auto before = std::exchange(told_, {});
    for (const auto agent : agents) {
        const auto word =
            stall_ ? native::StateStalled{stall_->why, undecided.contains(agent)} : native::StateStalled{};
        if (stall_) told_.emplace(agent, word);
        const auto known = before.find(agent);
        if (word == (known == before.end() ? native::StateStalled{} : known->second)) continue;
        auto same = std::ranges::find(words, native::Message(word), &SendTo::message);
        if (same == words.end()) same = words.insert(same, SendTo{{}, word});
        same->connections.push_back(agent);
    }
    return words;
}

Instant StateWatch::deadline() const {
    return !stall_ && waiting_since_ ? std::min(look_at_, *waiting_since_ + slow_after) : look_at_;
}

}  // namespace muster::rendezvous
