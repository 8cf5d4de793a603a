// ClientCore: the daemon's messages. Messages that are stale by their round or by this agent's state are ignored.
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/client/core/client_core.h"

namespace muster::rendezvous {

void ClientCore::on(const MessageReceived& input, Instant now) {
    if (kept_) resume_receiving();
    if (link_ != Link::open && link_ != Link::greeting) return;
    if (!silent_.empty()) silent_.erase(describe(endpoint()));
    if (const auto* challenge = std::get_if<native::Challenge>(&input.message)) return on_challenge(*challenge, now);
    // Before NotLeader, of a daemon that has not proved the secret.
    const auto* stalled = std::get_if<native::StateStalled>(&input.message);
    if (stalled != nullptr && !link_answered_) {
        early_stall_ = *stalled;
        return;
    }
    // The named daemon must still prove the secret.
    if (const auto* elsewhere = std::get_if<native::NotLeader>(&input.message)) return on_not_leader(*elsewhere, now);
    const auto* refused = std::get_if<native::Refused>(&input.message);
    if (!trusted_ && refused != nullptr && refused->reason == native::RefusalReason::secret && try_next_key(now)) {
        if (!ever_received_) ++uncounted_;
        return out_.push_back(Disconnect{});
    }
    // At the start, a refusal from an untrusted daemon counts, because this node could only wait otherwise. Later it
    // does not: another program on the port, or a daemon started without its secret, must not end workers.
    if (!trusted_ && (refused == nullptr || ever_received_))
        return distrust(refused != nullptr ? refused->why : "it did not prove that it has the job's secret", now);
    link_received_at_ = now;
    store_.clear();
    if (!link_answered_) last_leader_ = endpoint();
    if (!std::exchange(link_answered_, true) && std::exchange(has_older_, false)) out_.push_back(DropOlder{});
    ever_received_ = true;
    lines_.answered(now);
    // Any message on this connection shows that the daemon has read our introduction.
    heard_until_ = std::max(heard_until_, opened_at_);
    if (!early_stall_.why.empty()) on_state_stalled(std::exchange(early_stall_, {}), now);
    const auto& message = input.message;
    if (const auto* pong = std::get_if<native::Pong>(&message))
        on_pong(*pong, now);
    else if (const auto* answer = std::get_if<native::CommandAnswer>(&message))
        on_command_answer(*answer);
    else if (std::holds_alternative<native::FaultOrdered>(message))
        out_.push_back(Deliver{message});
    else if (membership_ == Membership::over || membership_ == Membership::leaving)
        return;
    else if (const auto* assigned = std::get_if<native::Assigned>(&message))
        on_assigned(*assigned, now);
    else if (const auto* peers = std::get_if<native::Peers>(&message))
        fencing_.set_peers(*peers);
    else if (const auto* ended = std::get_if<native::RoundEnded>(&message))
        on_round_ended(*ended, now);
    else if (const auto* news = std::get_if<native::Gathering>(&message)) {
        parked_ = false;
        lines_.gathering(*news, now);
    } else if (const auto* parked = std::get_if<native::Parked>(&message)) {
        lines_.parked(*parked, now);
        parked_ = true;
        joining_since_ = now;
        if (membership_ == Membership::joining) out_.push_back(Deliver{message});
    } else if (std::holds_alternative<native::JobEnded>(message) || std::holds_alternative<native::Refused>(message))
        on_job_over(message);
    else if (stalled != nullptr)
        on_state_stalled(*stalled, now);
    else if (const auto* seen = std::get_if<native::JobSeen>(&message)) {
        if (membership_ == Membership::in_round && assigned_ && seen->round == assigned_->round)
            out_.push_back(Deliver{message});
    } else if (std::holds_alternative<native::Drain>(message) || std::holds_alternative<native::NoticeGiven>(message))
        out_.push_back(Deliver{message});
}

void ClientCore::on_command_answer(const native::CommandAnswer& answer) {
    std::erase_if(commands_, [&](const Asked& one) { return one.command.number == answer.number; });
    out_.push_back(Deliver{answer});
}

void ClientCore::on_pong(const native::Pong& pong, Instant now) {
    const auto sent = clock_instant(pong.sent_ns);
    if (sent > now || pong.sequence > ping_sequence_) return;  // not an answer to our ping
    heard_until_ = std::max(heard_until_, sent);
    ping_answered_ = pong.sequence == ping_sequence_;
    if (ping_answered_) round_trip_ = now - sent;
    offset_.sample(sent, now, pong.daemon_ns);
    if (reports_held_) {
        send_reports(now);
        if (!holds_join()) send_commands(now);
    }
    if (parked_) joining_since_ = now;
}

void ClientCore::on_assigned(const native::Assigned& assigned, Instant now) {
    if (membership_ != Membership::joining || assigned.round <= join_.last_round) return;  // a repetition
    // Read late, because this agent or the connection was stalled: the round may be over. A new introduction obtains
    // the current state.
    if (now >= heard_until_ + fencing_.lost_after()) {
        disconnect();
        retry_at_ = now;
        return;
    }
    membership_ = Membership::in_round;
    assigned_ = assigned;
    assigned_->store_clients.clear();  // a Resume needs no such list, and no secret
    assigned_->secret.clear();
    as_joined_ = join_;
    report_.reset();
    succeeded_ = false;
    final_ = false;
    backoff_ = config_.backoff_min;
    lines_.end();
    fencing_.watch(assigned);
    peer_proof_.begin(assigned);
    out_.push_back(Deliver{assigned});
}

void ClientCore::on_round_ended(const native::RoundEnded& ended, Instant now) {
    if (!assigned_ || ended.round != assigned_->round) return;
    // Failures are kept until the verdict, because the daemon that knows them may be lost before.
    if (!ended.final) failures_.clear();
    final_ = ended.final;
    if (membership_ == Membership::in_round) {
        out_.push_back(Deliver{ended});
    } else if (membership_ == Membership::drained) {
        // The daemon repeats the request after a reconnect or restart: our answer may be lost.
        drained_at_ = now;
        if (report_ && !reports_held_) send_round_report();
        out_.push_back(Deliver{ended});
    }
}

void ClientCore::on_job_over(native::Message message) {
    if (end_known_) return;
    end_known_ = true;
    lines_.end();
    // No round follows that could run beside our last workers, so they get their whole grace period.
    fencing_.stop();
    if (auto* refused = std::get_if<native::Refused>(&message)) {
        membership_ = Membership::over;
        // The daemon does not know the endpoint by which this node reaches it, so add it here.
        if (const auto job = cat("job '", config_.job, "'"); refused->why.starts_with(job))
            refused->why.insert(job.size(), cat(" at ", describe(config_.endpoint)));
    }
    out_.push_back(Deliver{std::move(message)});
}

/// A node with running workers and no pending decision has nothing to wait for.
void ClientCore::on_state_stalled(const native::StateStalled& stalled, Instant now) {
    const bool waited = membership_ == Membership::joining || held_back_since_;
    if (!stalled.decided)
        held_back_since_.reset();
    else if (!held_back_since_)
        held_back_since_ = now;
    const bool waits = membership_ == Membership::joining || held_back_since_;
    if (waits && !waited) lines_.begin(now);
    lines_.stalled(stalled.why);
    if (!waits) lines_.end();
}

}  // namespace muster::rendezvous
