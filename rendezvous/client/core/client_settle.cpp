// What is due now: connect, say the join that was held back, ping, fence, give up, tell a person. Each derived from the
// state, none remembered.
#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/client/core/client_core.h"

namespace muster::rendezvous {

std::vector<ClientOutput> ClientCore::settle(Instant now) {
    settle_fencing(now);
    settle_patience(now);
    settle_link(now);
    settle_ping(now);
    settle_lines(now);
    settled_at_ = now;
    return std::exchange(out_, {});
}

void ClientCore::say(native::Message message) {
    out_.push_back(Send{std::move(message)});
}

void ClientCore::settle_link(Instant now) {
    if ((link_ == Link::open || link_ == Link::greeting) && wants_connection() && now >= link_stale_at())
        leave_stale_link(now);
    if (link_ == Link::none && wants_connection() && now >= retry_at_) {
        link_ = Link::connecting;
        attempted_at_ = now;
        out_.push_back(Connect{});
    }
    if (link_ == Link::open && standing_ == Standing::joining && join_held_ && !reports_held_ &&
        now >= promised_until_) {
        join_held_ = false;
        say(join_);
        say_commands(now);
    }
}

void ClientCore::ping(Instant now) {
    pinged_at_ = now;
    ping_answered_ = false;
    say(native::Ping{++ping_sequence_, clock_ns(now)});
}

void ClientCore::settle_ping(Instant now) {
    if (can_say() && wants_connection() && now >= ping_due()) ping(now);
}

void ClientCore::settle_fencing(Instant now) {
    if (!fencing_.watching()) return;
    auto step = fencing_.step(heard_until_, now);
    for (auto& peer : step.ask) {
        native::PeerAsk question{config_.job, assigned_->round, peer.group_rank};
        out_.push_back(AskPeer{std::move(peer), std::move(question), fencing_.ask_timeout()});
    }
    if (step.fenced) out_.push_back(Fenced{*std::move(step.fenced)});
    if (step.lost)
        give_up(cat(describe(endpoint()), " has not answered for ", describe(now - heard_until_),
                    tried_.empty() ? "" : "; last tried: ", tried_, what_would_help()));
}

/// How long this agent waits for what the daemon owes it, or says that it holds back.
Instant ClientCore::patience_ends() const {
    const bool waits =
        standing_ == Standing::joining || standing_ == Standing::in_round || standing_ == Standing::drained;
    return waits && !end_known_ ? std::min(owed_until(), decision_due()) : no_deadline;
}

Instant ClientCore::owed_until() const {
    switch (standing_) {
        case Standing::joining: return std::min(joining_since_ + config_.join_timeout, lost_while_joining_at());
        case Standing::drained:
            // After the last round the daemon waits at most lost_timeout for the slowest node, then says how it ended.
            return final_ ? std::max(heard_until_ + config_.lost_timeout, drained_at_ + 2 * config_.lost_timeout)
                          : heard_until_ + config_.lost_timeout;
        default: return no_deadline;
    }
}

void ClientCore::settle_patience(Instant now) {
    if (now < patience_ends()) return;
    if (now >= decision_due()) {
        give_up(cat("no decision within ", describe(config_.lost_timeout), ": ", lines_.state(),
                    "; make room on the daemon's disk, or mend it, and start this node again (--rdzv-lost-timeout sets "
                    "how long a node waits)"));
    } else if (standing_ == Standing::joining) {
        // Who has heard it knows name and port; what it lacks is a rendezvous that outlives its host.
        const auto advice = now >= lost_while_joining_at() ? std::string(what_would_help()) : lines_.hint();
        give_up(cat("no round within ", describe(now - joining_since_), ": ", lines_.state(), advice));
    } else
        give_up(cat(describe(endpoint()), " did not say how the job ended", what_would_help()));
}

/// For the job that comes next: this one had a rendezvous, and lost it.
std::string_view ClientCore::what_would_help() const {
    if (config_.is_told_leader) return "; etcd, or every node that may host the rendezvous, was away for all that time";
    if (!config_.others.empty())
        return "; every daemon of --rdzv-endpoint, or the etcd of their --state, was away for all that time";
    if (config_.endpoint_option == "--master-addr")
        return "; the static back end ends with the node of rank 0: with --rdzv-backend etcd a job outlives its "
               "rendezvous' host";
    return "; a job outlives its rendezvous' host with --rdzv-backend etcd, or with several hosts that run musterd "
           "--state etcd://... and are all named in --rdzv-endpoint; and it outlives the daemon alone where that is "
           "started again in time (musterd --state sqlite:PATH, --rdzv-lost-timeout)";
}

void ClientCore::give_up(std::string why) {
    standing_ = Standing::over;
    fencing_.stop();
    lines_.end();
    disconnect();
    out_.push_back(RendezvousLost{std::move(why)});
}

void ClientCore::settle_lines(Instant now) {
    if (standing_ != Standing::joining && !held_back_since_) return;
    // While the daemon is there it is the join time-out that counts; a daemon that is gone is given up sooner.
    const bool joins = standing_ == Standing::joining && link_ == Link::open;
    const auto gives_up_at = joins ? std::min(joining_since_ + config_.join_timeout, decision_due()) : patience_ends();
    if (auto line = lines_.line(now, gives_up_at)) out_.push_back(Progress{*std::move(line)});
}

Instant ClientCore::deadline() const {
    auto first = no_deadline;
    const auto consider = [&](Instant when) {
        if (when > settled_at_) first = std::min(first, when);
    };
    if (link_ == Link::none && wants_connection()) consider(retry_at_);
    if (link_ == Link::greeting && wants_connection()) consider(link_stale_at());
    if (can_say() && wants_connection()) consider(ping_due());
    if (link_ == Link::open && wants_connection()) {
        consider(link_stale_at());
        if (join_held_) consider(promised_until_);
    }
    consider(fencing_.deadline(heard_until_));
    consider(patience_ends());
    if (standing_ == Standing::joining || held_back_since_) consider(lines_.deadline());
    return first;
}

}  // namespace muster::rendezvous
