#include "rendezvous/client/core/loss_below.h"

#include <algorithm>

namespace muster::rendezvous {

namespace {

std::uint32_t all_of(std::uint32_t children) {
    return children >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << children) - 1;
}

/// Durations of others: none that matters is longer.
bool is_sound(std::int64_t ns) {
    return ns >= 0 && std::chrono::nanoseconds(ns) <= std::chrono::hours(24);
}

}  // namespace

bool LossBelow::is_below(std::uint32_t position) const {
    if (position == 0 || position >= place_.size) return false;
    const auto parent = place_.parent_of(position);
    return parent == place_.position || (parent > 0 && place_.parent_of(parent) == place_.position);
}

void LossBelow::asked(const native::PeerAsk& ask, Instant now) {
    if (!is_below(ask.asker)) return;
    auto& member = members_[ask.asker];
    if (ask.number < member.newest) return;  // overtaken
    member.newest = ask.number;
    if (!ask.lost) {
        member.word.reset();
        return;
    }
    const auto echoed = std::ranges::find(member.answered, ask.echo, &Answered::number);
    if (ask.echo == 0 || echoed == member.answered.end() || !is_sound(ask.age_ns) || !is_sound(ask.held_ns)) return;
    const auto left = std::min(now, echoed->at + std::chrono::nanoseconds(ask.held_ns));
    member.word = Word{.covered = ask.covered, .oldest = left - std::chrono::nanoseconds(ask.age_ns), .said_at = now};
}

void LossBelow::answered(const native::PeerAsk& ask, Instant now) {
    if (!is_below(ask.asker)) return;
    auto& member = members_[ask.asker];
    member.answered[member.answered_next++ % member.answered.size()] = {ask.number, now};
}

const LossBelow::Word* LossBelow::word_of(std::uint64_t position, Instant now) const {
    const auto found = members_.find(static_cast<std::uint32_t>(position));
    if (found == members_.end() || !found->second.word) return nullptr;
    const auto& word = *found->second.word;
    return now < word.said_at + longest_silence_ ? &word : nullptr;
}

bool LossBelow::add_subtree(std::uint32_t child, Instant now, Instant& oldest) const {
    const auto* own = word_of(child, now);
    if (own == nullptr) return false;
    oldest = std::min(oldest, own->oldest);
    const auto first = place_.first_child_of(child);
    for (std::uint32_t i = 0; i < place_.child_count_of(child); ++i) {
        if ((own->covered >> i & 1) != 0) continue;
        const auto* direct = word_of(first + i, now);
        const auto below = place_.child_count_of(static_cast<std::uint32_t>(first + i));
        if (direct == nullptr || (direct->covered & all_of(below)) != all_of(below)) return false;
        oldest = std::min(oldest, direct->oldest);
    }
    return true;
}

Covered LossBelow::covered(Instant now) const {
    Covered sum;
    const auto first = static_cast<std::uint32_t>(place_.first_child_of(place_.position));
    for (std::uint32_t i = 0; i < place_.child_count_of(place_.position); ++i) {
        auto oldest = sum.oldest;
        if (add_subtree(first + i, now, oldest)) {
            sum.oldest = oldest;
            sum.children |= std::uint32_t{1} << i;
        } else {
            sum.is_all = false;
        }
    }
    return sum;
}

}  // namespace muster::rendezvous
