// ClientCore::settle: what is due now, derived from the state: connect, send a held-back join, ping, fence, time out,
// report progress.
#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/client/core/client_core.h"

namespace muster::rendezvous {

namespace {

/// Where the lease is short, shorter ones are an everyday matter of a busy machine.
constexpr Duration told_standstill = 1s;

}  // namespace

std::vector<ClientOutput> ClientCore::settle(Instant now) {
    settle_standstill(now);
    settle_fencing(now);
    settle_missed(now);
    settle_connect_deadline(now);
    settle_link(now);
    settle_ping(now);
    settle_lines(now);
    settled_at_ = now;
    due_ = deadline();
    return std::exchange(out_, {});
}

/// A step much later than was due: what was not heard meanwhile is no silence of the daemon.
void ClientCore::settle_standstill(Instant now) {
    if (now - config_.lease / 2 <= due_) return;
    fencing_.woke(now);
    joining_since_ = std::min(now, joining_since_ + (now - due_));  // it may have begun with this step
    if (now - due_ < told_standstill) return;
    out_.push_back(
        Progress{cat("this launcher stood still for ", describe(now - due_),
                     ": it was stopped (Ctrl-Z, SIGSTOP, a paused machine), got no CPU, or waited for a disk")});
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
    if (link_ == Link::open && membership_ == Membership::joining && join_held_ && !reports_held_ &&
        now >= promised_until_) {
        join_held_ = false;
        say(join_);
        send_commands(now);
    }
}

void ClientCore::ping(Instant now) {
    pinged_at_ = now;
    ping_answered_ = false;
    say(native::Ping{++ping_sequence_, clock_ns(now)});
}

void ClientCore::settle_ping(Instant now) {
    if (can_send() && wants_connection() && now >= ping_due()) ping(now);
}

void ClientCore::settle_fencing(Instant now) {
    if (!fencing_.watching()) return;
    auto step = fencing_.step(heard_until_, now);
    for (auto& question : step.ask) {
        auto& ask = question.ask;
        ask.job = config_.job;
        ask.round = assigned_->round;
        if (ask.lost)
            promised_until_ = now + fencing_.promise();
        else
            ask.leader = answering_daemon();
        peer_proof_.sign(ask, question.answered_nonce);
        asked_[ask.number] = ask;
        out_.push_back(QueryPeer{std::move(question.peer), std::move(ask), fencing_.ask_timeout()});
    }
    if (step.fenced) out_.push_back(Fenced{*std::move(step.fenced)});
    if (step.lost)
        give_up(cat(describe(endpoint()), " has not answered for ", describe(now - heard_until_),
                    tried_.empty() ? "" : "; last tried: ", tried_, what_would_help()));
}

void ClientCore::settle_missed(Instant now) {
    if (!fencing_.watching()) {
        missed_since_.reset();
    } else if (!missed_since_ && now >= missed_at()) {
        missed_since_ = heard_until_;
        out_.push_back(Progress{cat(describe(endpoint()), " has not answered for ", describe(now - heard_until_),
                                    "; the workers keep running; timeout in ",
                                    describe(fencing_.lost_at(heard_until_) - now), " (--rdzv-lost-timeout)")});
    } else if (missed_since_ && heard_until_ > *missed_since_ && now < missed_at()) {
        out_.push_back(
            Progress{cat(describe(endpoint()), " answers again after ", describe(heard_until_ - *missed_since_))});
        missed_since_.reset();
    }
}

/// The deadline for an answer that the daemon owes, or has announced to hold back.
Instant ClientCore::connect_deadline() const {
    const bool waits =
        membership_ == Membership::joining || membership_ == Membership::in_round || membership_ == Membership::drained;
    return waits && !end_known_ ? std::min(owed_until(), decision_due()) : no_deadline;
}

Instant ClientCore::owed_until() const {
    switch (membership_) {
        case Membership::joining: return std::min(joining_since_ + config_.join_timeout, lost_while_joining_at());
        case Membership::drained:
            // After the last round the daemon waits at most lost_timeout for the slowest node before it sends JobEnded.
            return final_ ? std::max(fencing_.lost_at(heard_until_), drained_at_ + 2 * config_.lost_timeout)
                          : fencing_.lost_at(heard_until_);
        default: return no_deadline;
    }
}

void ClientCore::settle_connect_deadline(Instant now) {
    if (now < connect_deadline()) return;
    if (now >= decision_due()) {
        give_up(
            cat("no decision within ", describe(config_.lost_timeout), ": ", lines_.state(),
                "; free space on the daemon's disk, or repair it, and start this node again (--rdzv-lost-timeout sets "
                "the timeout)"));
    } else if (membership_ == Membership::joining) {
        // A node that has reached the daemon needs no advice about name and port, but a rendezvous that survives a
        // host.
        const auto advice = now >= lost_while_joining_at() ? std::string(what_would_help()) : lines_.hint();
        give_up(cat("no round within ", describe(owed_until() - joining_since_), ": ", lines_.state(), advice));
    } else
        give_up(cat(describe(endpoint()), " did not report the end of the job", what_would_help()));
}

/// Advice for the next job after this one lost its rendezvous.
std::string_view ClientCore::what_would_help() const {
    if (config_.leader_is_supplied)
        return "; etcd, or every node that may host the rendezvous, was unreachable for all that time";
    if (!config_.others.empty())
        return "; every daemon of --rdzv-endpoint, or the etcd of their --state, was unreachable for all that time";
    if (config_.endpoint_option == "--master-addr")
        return "; the static back end depends on the node of rank 0; to survive the loss of the rendezvous host, use "
               "--rdzv-backend etcd";
    return "; to survive the loss of the rendezvous host, use --rdzv-backend etcd, or musterd --state etcd://... on "
           "several hosts, all named in --rdzv-endpoint; to survive a restart of the daemon, use musterd --state "
           "sqlite:PATH and a long enough --rdzv-lost-timeout";
}

void ClientCore::give_up(std::string why) {
    membership_ = Membership::over;
    fencing_.stop();
    lines_.end();
    disconnect();
    out_.push_back(RendezvousLost{std::move(why)});
}

void ClientCore::settle_lines(Instant now) {
    if (membership_ != Membership::joining && !held_back_since_) return;
    // The join timeout applies while the daemon answers; the lost timeout applies when it does not.
    const bool joins = membership_ == Membership::joining && link_ == Link::open;
    const auto gives_up_at =
        joins ? std::min(joining_since_ + config_.join_timeout, decision_due()) : connect_deadline();
    if (auto line = lines_.line(now, gives_up_at)) out_.push_back(Progress{*std::move(line)});
}

Instant ClientCore::deadline() const {
    auto first = no_deadline;
    const auto consider = [&](Instant when) {
        if (when > settled_at_) first = std::min(first, when);
    };
    if (link_ == Link::none && wants_connection()) consider(retry_at_);
    if (link_ == Link::greeting && wants_connection()) consider(link_stale_at());
    if (can_send() && wants_connection()) consider(ping_due());
    if (link_ == Link::open && wants_connection()) {
        consider(link_stale_at());
        if (join_held_) consider(promised_until_);
    }
    consider(fencing_.deadline(heard_until_));
    if (fencing_.watching() && !missed_since_) consider(missed_at());
    consider(connect_deadline());
    if (membership_ == Membership::joining || held_back_since_) consider(lines_.deadline());
    return first;
}

}  // namespace muster::rendezvous
