// A connection over which nothing comes for half a lease: the daemon stands still, a packet was lost many times over,
// or a NAT has forgotten it. Nobody here can tell, so a second connection is tried while there is still time before the
// lease ends, and whichever is heard first is the one that counts. The first one is neither closed nor left alone
// meanwhile: its end would tell a daemon that hears us that this agent is dead, and what is said on it helps TCP to
// mend a loss.
#include <utility>

#include "rendezvous/client/core/client_core.h"

namespace muster::rendezvous {

void ClientCore::leave_stale_link(Instant now) {
    if (link_answered_)
        kept_ = Kept{.endpoint_at = endpoint_at_, .told_of = told_of_};
    else {
        out_.push_back(Disconnect{});
        note_silence(now);
    }
    tried_ = "connected, but no answer";
    lines_.no_answer(WaitingLines::Reached::somebody, tried_, now);
    link_ = Link::none;
    retry_at_ = now;
    try_next_endpoint(now);
}

/// The silent one was heard first.
void ClientCore::hear_again() {
    if (link_ == Link::connecting) out_.push_back(Abandon{});
    link_ = Link::open;
    endpoint_at_ = kept_->endpoint_at;
    told_of_ = std::exchange(kept_, std::nullopt)->told_of;
    if (standing_ != Standing::leaving || leave_said_) return;
    say(native::Leave{*leave_});
    leave_said_ = true;
}

void ClientCore::disconnect() {
    if (link_ != Link::none || kept_) out_.push_back(Disconnect{});
    kept_.reset();
    link_ = Link::none;
}

}  // namespace muster::rendezvous
