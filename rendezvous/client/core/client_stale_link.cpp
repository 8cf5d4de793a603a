// A stale link: nothing was received for half a lease. The daemon may be suspended, packets may be lost repeatedly, or
// a NAT may have dropped the connection. The client cannot tell, so it opens a second connection before the lease ends
// and uses the one that answers first. The first one stays open and in use meanwhile: closing it would tell a daemon
// that still receives our messages that this agent has died, and new data helps TCP to detect a loss.
#include <utility>

#include "rendezvous/client/core/client_core.h"

namespace muster::rendezvous {

void ClientCore::leave_stale_link(Instant now) {
    if (link_answered_)
        kept_ = Kept{.endpoint_at = endpoint_at_, .named_leader = named_leader_};
    else {
        out_.push_back(Disconnect{});
        note_timeout(now);
    }
    tried_ = "connected, but no answer";
    lines_.no_answer(WaitingLines::Reached::a_peer, tried_, now);
    link_ = Link::none;
    retry_at_ = now;
    try_next_endpoint(now);
}

/// The old connection answered first.
void ClientCore::resume_receiving() {
    if (link_ == Link::connecting) out_.push_back(Abandon{});
    link_ = Link::open;
    endpoint_at_ = kept_->endpoint_at;
    named_leader_ = std::exchange(kept_, std::nullopt)->named_leader;
    if (membership_ != Membership::leaving || leave_sent_) return;
    say(native::Leave{*leave_});
    leave_sent_ = true;
}

void ClientCore::disconnect() {
    if (link_ != Link::none || kept_) out_.push_back(Disconnect{});
    kept_.reset();
    link_ = Link::none;
}

}  // namespace muster::rendezvous
