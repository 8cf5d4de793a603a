#include "rendezvous/client/core/client_core.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/report.h"

namespace muster::rendezvous {

// More daemons than share a state.
constexpr std::size_t silent_max = 8;
// Of a lease: so long a daemon is skipped that has refused a connection.
constexpr int refused_part = 10;
// The daemon of the job before may still have the port, or somebody else take it for a moment. Whoever has a wrong key
// is told after this time.
constexpr Duration refusal_stands_after = 1s;

ClientCore::ClientCore(ClientConfig config)
    : config_(std::move(config)),
      backoff_(config_.backoff_min),
      fencing_({.lease = config_.lease,
                .lost_timeout = config_.lost_timeout,
                .fan_out = config_.fan_out,
                .is_alone = config_.is_alone}),
      peer_proof_(config_.peers_hash, config_.secret_seed),
      lines_(config_.endpoint, config_.job, config_.leader_is_supplied, config_.endpoint_option) {}

// ---- the supervisor's verbs ----

std::vector<ClientOutput> ClientCore::submit(native::Message message, Instant now) {
    if (auto* one = std::get_if<native::Join>(&message)) return join(std::move(*one), now);
    if (auto* one = std::get_if<native::WorkersFailed>(&message)) return workers_failed(std::move(one->failures), now);
    if (std::holds_alternative<native::WorkersSucceeded>(message)) return workers_succeeded(now);
    if (auto* one = std::get_if<native::RoundReport>(&message)) return round_report(std::move(*one), now);
    if (auto* one = std::get_if<native::Leave>(&message)) return leave(std::move(one->why), now);
    if (std::holds_alternative<native::EndAcknowledged>(message)) return end_acknowledged(now);
    if (auto* one = std::get_if<native::Command>(&message)) return command(std::move(*one), now);
    const bool is_sample = !std::holds_alternative<native::FaultAnswer>(message);
    MUSTER_CHECK(!is_sample || std::holds_alternative<native::WorkersSeen>(message) ||
                     std::holds_alternative<native::StandbysSeen>(message),
                 message.index());
    if (can_send() && !holds_join() && !(is_sample && answer_is_overdue(now))) say(std::move(message));
    return settle(now);
}

std::vector<ClientOutput> ClientCore::join(native::Join join, Instant now) {
    if (membership_ == Membership::over || membership_ == Membership::leaving) return settle(now);
    join_ = std::move(join);
    // A node that says something new of itself while it waits has not begun to wait only now.
    if (membership_ != Membership::joining) joining_since_ = now;
    membership_ = Membership::joining;
    // The workers of the previous round have ended, so its unsent reports are dropped.
    fencing_.stop();
    assigned_.reset();
    succeeded_ = false;
    final_ = false;
    failures_.clear();
    parked_ = false;
    lines_.begin(now);
    join_held_ = now < promised_until_;
    if (can_send() && !holds_join()) say(join_);
    return settle(now);
}

std::vector<ClientOutput> ClientCore::workers_failed(std::vector<Failure> failures, Instant now) {
    if (!round_known() || membership_ == Membership::over) return settle(now);
    for (auto& failure : failures) failures_.push_back(std::move(failure));
    native::fit_report(failures_);
    if (can_send() && !reports_held_) send_failures();
    return settle(now);
}

std::vector<ClientOutput> ClientCore::workers_succeeded(Instant now) {
    if (!round_known() || membership_ == Membership::over) return settle(now);
    succeeded_ = true;
    if (can_send()) say(native::WorkersSucceeded{assigned_->round});
    return settle(now);
}

std::vector<ClientOutput> ClientCore::round_report(native::RoundReport report, Instant now) {
    if (membership_ != Membership::in_round) return settle(now);
    native::fit_report(report.failures);
    report_ = std::move(report);
    membership_ = Membership::drained;
    drained_at_ = now;
    fencing_.stop();
    if (can_send() && !reports_held_) send_round_report();
    return settle(now);
}

std::vector<ClientOutput> ClientCore::leave(std::string why, Instant now) {
    if (membership_ == Membership::idle || membership_ == Membership::over) {
        membership_ = Membership::over;
        return settle(now);
    }
    fencing_.stop();
    lines_.end();
    if (can_send() && reports_held_) send_reports(now);
    leave_ = std::move(why);
    membership_ = Membership::leaving;
    leave_sent_ = link_ == Link::open;
    if (leave_sent_) say(native::Leave{*leave_});
    return settle(now);
}

std::vector<ClientOutput> ClientCore::end_acknowledged(Instant now) {
    fencing_.stop();
    membership_ = Membership::over;
    if (can_send() && end_known_ && !acknowledged_) say(native::EndAcknowledged{});
    acknowledged_ = true;
    return settle(now);
}

std::vector<ClientOutput> ClientCore::command(native::Command command, Instant now) {
    constexpr std::size_t commands_max = 16;
    if (commands_.size() == commands_max) commands_.erase(commands_.begin());
    if (can_send() && !holds_join()) say(command);
    commands_.push_back({std::move(command), now});
    return settle(now);
}

std::vector<ClientOutput> ClientCore::leader_is(const std::optional<Endpoint>& leader, std::string why, Instant now) {
    if (!leader) {
        if (link_ == Link::none) lines_.no_answer(WaitingLines::Reached::a_peer, std::move(why), now);
        return settle(now);
    }
    if (named_leader_ == leader) return settle(now);
    named_leader_ = leader;
    leave_not_acknowledged();
    disconnect();
    retry_at_ = now;
    backoff_ = config_.backoff_min;
    return settle(now);
}

std::vector<ClientOutput> ClientCore::step(const ClientInput& input, Instant now) {
    std::visit([&](const auto& happened) { on(happened, now); }, input);
    return settle(now);
}

std::optional<native::PeerAnswer> ClientCore::answer(const native::PeerAsk& ask, Instant now) {
    if (!peer_proof_.accept(ask)) return std::nullopt;
    native::PeerAnswer answer;
    // A question for another node, which arrived here because two hosts share an address (a bridge's), gets no answer.
    if (ask.job != config_.job || !round_known() || ask.group_rank != assigned_->group_rank) return answer;
    answer.round = assigned_->round;
    // Only the time since the last answer counts, because a connection that just broke proves nothing.
    const bool is_lost = now >= heard_until_ + fencing_.lost_after();
    if (fencing_.watching() && ask.round == answer.round) {
        answer.leader_lost = is_lost;
        answer.all_age_ns = fencing_.asked(ask, is_lost, now);
        if (is_lost && !ask.lost) look_for_daemon(ask.leader, now);
    }
    if (answer.leader_lost)
        promised_until_ = now + fencing_.promise();
    else
        answer.leader = answering_daemon();
    peer_proof_.sign(ask, answer);
    return answer;
}

/// For peers that look for it; empty where there is only one.
std::string ClientCore::answering_daemon() const {
    return has_choice() && link_ == Link::open && link_answered_ ? describe(endpoint()) : std::string();
}

// ---- the connection ----

bool ClientCore::wants_connection() const {
    if (config_.leader_is_supplied && !named_leader_) return false;
    switch (membership_) {
        case Membership::joining:
        case Membership::in_round:
        case Membership::drained: return !end_known_;
        case Membership::leaving: return !leave_sent_;
        case Membership::idle:
        case Membership::over: return false;
    }
    return false;
}

void ClientCore::on(const ConnectionOpened& input, Instant now) {
    if (link_ != Link::connecting) return;
    has_older_ = has_older_ || kept_;
    kept_.reset();
    trusted_ = !secret() || input.is_proven;
    if (input.is_proven) refused_since_.reset();
    link_ = trusted_ ? Link::open : Link::greeting;
    opened_at_ = now;
    link_received_at_ = now;
    link_answered_ = false;
    early_stall_ = {};
    held_back_since_.reset();  // the daemon announces it again on each connection
    lines_.stalled({});
    offset_.forget_at_next_sample();
    ++connection_count_;
    greet();
    if (link_ == Link::open) introduce(now);
}

void ClientCore::greet() {
    hello_ = {};
    hello_.job = config_.job;
    hello_.node = config_.node;
    hello_.connection = connection_count_ - uncounted_;
    hello_.versions = config_.versions;
    nonce_.clear();
    if (!trusted_) hello_.challenge = secret()(cat("muster challenge ", connection_count_, ' ', config_.secret_seed));
    say(hello_);
}

/// The first Challenge requests our proof, the second carries the daemon's. Nothing else is sent before that.
void ClientCore::on_challenge(const native::Challenge& challenge, Instant now) {
    if (!secret())
        return distrust("it requires a secret, and this node has none; set MUSTER_SECRET_FILE on this node", now);
    const bool asks = link_ == Link::greeting && nonce_.empty() && !challenge.nonce.empty();
    if (asks) {
        nonce_ = challenge.nonce;
        return say(native::Proof{native::proof_of(secret(), native::Prover::agent, hello_, nonce_)});
    }
    if (link_ != Link::greeting || nonce_.empty() ||
        !same_digest(native::proof_of(secret(), native::Prover::daemon, hello_, nonce_), challenge.proof))
        return distrust("it does not have the job's secret (MUSTER_SECRET_FILE)", now);
    // Only now: failures and the ends of stderr are nobody else's business.
    trusted_ = true;
    link_ = Link::open;
    opened_at_ = now;
    introduce(now);
}

void ClientCore::distrust(std::string why, Instant now) {
    out_.push_back(Disconnect{.is_wrong_peer = true});
    tried_ = cat("connected, but ", why);
    lines_.no_answer(WaitingLines::Reached::a_peer, tried_, now);
    try_next_endpoint(now);
    retry_later(now);
}

/// The daemon refuses the key in use. False: each other one was tried since the first, which is in use again.
bool ClientCore::try_next_key(Instant now) {
    key_at_ = (key_at_ + 1) % (config_.older_keys.size() + 1);
    if (key_at_ == 0) return false;
    link_ = Link::none;
    retry_at_ = now + config_.backoff_min;
    return true;
}

static std::uint32_t saturated_ms(Duration duration) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(duration / 1ms, 0, UINT32_MAX));
}

/// Sends the whole state in one write, because the daemon may have missed any part of it.
void ClientCore::introduce(Instant now) {
    reports_held_ = offset_.is_stale() && sends_times();
    switch (membership_) {
        case Membership::joining:
        case Membership::in_round:
        case Membership::drained:
            if (assigned_)  // not while joining
                say(native::Resume{assigned_->round, succeeded_, as_joined_, *assigned_,
                                   saturated_ms(config_.stop_grace)});
            if (!reports_held_) send_reports(now);
            break;
        case Membership::leaving:
            say(native::Leave{*leave_});
            leave_sent_ = true;
            break;
        case Membership::idle:
        case Membership::over: return;
    }
    // A daemon accepts commands only from agents that have joined.
    if (!holds_join()) send_commands(now);
    ping(now);
}

bool ClientCore::sends_times() const {
    return (membership_ != Membership::joining && !failures_.empty()) || (report_ && !report_->failures.empty());
}

/// The report goes before the join: the join implies that the workers are gone, and without a report the daemon would
/// count the node as lost.
void ClientCore::send_reports(Instant now) {
    reports_held_ = false;
    if (membership_ != Membership::joining && assigned_ && !failures_.empty()) send_failures();
    if (report_) send_round_report();
    if (membership_ != Membership::joining) return;
    join_held_ = now < promised_until_;
    if (!join_held_) say(join_);
}

std::vector<Failure> ClientCore::on_daemon_clock(std::vector<Failure> failures) const {
    for (auto& failure : failures)
        std::tie(failure.at_ns, failure.uncertainty_ns) = failure.at_ns != 0
                                                              ? offset_.daemon_time(clock_instant(failure.at_ns))
                                                              : std::pair<std::int64_t, std::int64_t>{0, -1};
    return failures;
}

void ClientCore::send_failures() {
    say(native::WorkersFailed{assigned_->round, on_daemon_clock(failures_)});
}

void ClientCore::send_round_report() {
    auto report = *report_;
    report.failures = on_daemon_clock(std::move(report.failures));
    say(std::move(report));
}

/// Does not repeat a fault, which may have broken the connection, nor an old drain, which its sender has already been
/// told is unconfirmed.
void ClientCore::send_commands(Instant now) {
    constexpr Duration drain_lasts = 10s;  // the timeout of muster drain
    const Instant old = now - drain_lasts;
    std::erase_if(commands_, [old](const Asked& one) {
        const auto verb = one.command.verb;
        return verb == native::CommandVerb::inject_fault || (verb == native::CommandVerb::drain_node && one.at <= old);
    });
    for (const auto& one : commands_) say(one.command);
}

void ClientCore::on(const ConnectionFailed& input, Instant now) {
    if (link_ != Link::connecting) return;
    tried_ = input.tried;
    store_.clear();
    const bool is_refused = input.reached == ConnectionFailed::Reached::refused;
    if (is_refused && try_next_key(now)) return;
    // As for a Refused of a daemon that has not proved itself: it counts at the start alone.
    if (is_refused && !ever_received_) {
        if (!refused_since_) refused_since_ = now;
        if (now < *refused_since_ + refusal_stands_after) return retry_later(now);
        link_ = Link::none;
        return on_job_over(
            native::Refused{native::RefusalReason::secret, cat("job '", config_.job, "': ", input.tried)});
    }
    const bool is_nobody = input.reached == ConnectionFailed::Reached::nobody;
    lines_.no_answer(is_nobody ? WaitingLines::Reached::nothing : WaitingLines::Reached::a_peer, input.tried, now);
    note_timeout(now);
    try_next_endpoint(now);
    retry_later(now);
    // Little time is left then to find the daemon that leads now, and this one will not be asked again at once.
    if (has_choice() && fencing_.watching() && !is_silent(endpoint(), now)) retry_at_ = now + config_.backoff_min;
}

const Endpoint& ClientCore::endpoint() const {
    if (named_leader_) return *named_leader_;
    return endpoint_at_ == 0 ? config_.endpoint : config_.others[endpoint_at_ - 1];
}

/// A redirect to another daemon is dropped as soon as that daemon does not answer.
void ClientCore::try_next_endpoint(Instant now) {
    if (config_.leader_is_supplied) return;
    const auto left = endpoint();
    const auto next = [this] { endpoint_at_ = (endpoint_at_ + 1) % daemon_count(); };
    if (!std::exchange(named_leader_, std::nullopt) || endpoint() == left) next();
    // All of them may be: then the next one in turn is as good as any.
    for (std::size_t skipped = 0; skipped < daemon_count() && is_silent(endpoint(), now); ++skipped) next();
}

void ClientCore::note_timeout(Instant now) {
    if (!has_choice()) return;
    // A refusal costs no time, and a daemon that is just being started may be the next leader.
    const bool was_refused = now < attempted_at_ + config_.lease / 20;
    silent_[describe(endpoint())] = now + config_.lease / (was_refused ? refused_part : 2);
    if (silent_.size() <= silent_max) return;
    silent_.erase(std::ranges::min_element(silent_, {}, &std::pair<const std::string, Instant>::second));
}

/// Another daemon that is named as the leader. Empty where etcd names it, which knows best.
std::optional<Endpoint> ClientCore::elsewhere(std::string_view named) const {
    auto leader = parse_endpoint(named, 0);
    if (config_.leader_is_supplied || !leader || leader->port == 0 || *leader == endpoint()) return std::nullopt;
    return *std::move(leader);
}

/// A follower's messages do not count as contact: only the leader's do.
void ClientCore::on_not_leader(const native::NotLeader& told, Instant now) {
    out_.push_back(Disconnect{});
    // Only this one: a leader that has not answered an earlier one may have heard of it, and refuses its number.
    if (!ever_received_) ++uncounted_;
    leave_not_acknowledged();
    const bool nobody = told.leader.empty() || told.leader == describe(endpoint());
    const bool tells_why = nobody && !early_stall_.why.empty();
    tried_ = cat(describe(endpoint()),
                 tells_why ? cat(" serves no job, because it cannot write its state: ", early_stall_.why)
                 : nobody  ? std::string(" is not the leader and knows no leader")
                           : cat(" is not the leader; the leader is ", told.leader));
    lines_.no_answer(tells_why ? WaitingLines::Reached::follower : WaitingLines::Reached::a_peer, tried_, now);
    auto leader = elsewhere(told.leader);
    // It may be behind, and name the lost leader. Another one may lead since it was silent; but one that has refused a
    // connection is asked again no sooner.
    const bool is_skipped = leader && is_silent(*leader, now) &&
                            (leader == last_leader_ || !is_silent(*leader, now + config_.lease / refused_part));
    try_next_endpoint(now);
    retry_later(now);
    if (!leader || is_skipped) return;
    named_leader_ = std::move(leader);
    retry_at_ = now + config_.backoff_min;
}

void ClientCore::on(const StoreAnswered& input, Instant now) {
    if (link_answered_ && link_ == Link::open) return;  // muster answers there now
    store_ = tried_ = input.has_job ? cat("torchrun serves its own rendezvous of job '", config_.job, "' there")
                                    : std::string("PyTorch's store answers there, torchrun's or a script's");
    lines_.no_answer(WaitingLines::Reached::store, tried_, now);
}

void ClientCore::on(const ConnectionClosed& input, Instant now) {
    kept_.reset();  // the new connection is already being opened
    if (link_ != Link::open && link_ != Link::greeting) return;
    if (link_answered_)
        tried_ = cat("the connection ended: ", input.why);
    else if (!store_.empty())
        tried_ = store_;
    else if (input.foreign)
        tried_ = "connected, but it does not speak muster's protocol";
    else
        tried_ = cat("connected, but the connection ended before any answer: ", input.why);
    const bool is_store = !link_answered_ && !store_.empty();
    lines_.no_answer(is_store ? WaitingLines::Reached::store : WaitingLines::Reached::a_peer, tried_, now);
    // No backoff after a working connection: a restarted daemon, or a firewall's reset.
    if (link_answered_) {
        link_ = Link::none;
        retry_at_ = now + config_.backoff_min;
        backoff_ = config_.backoff_min;
    } else {
        try_next_endpoint(now);
        retry_later(now);
    }
}

void ClientCore::retry_later(Instant now) {
    link_ = Link::none;
    retry_at_ = now + backoff_;
    backoff_ = std::min(backoff_ * 2, config_.backoff_max);
    // With running workers, a quarter of a lease remains to find the one of all daemons that is back (fencing.h).
    if (!fencing_.watching()) return;
    // But all nodes of a large round together ask the daemons no more often than they send heartbeats.
    const auto quickest = std::max<Duration>(config_.backoff_min, config_.lease / 10 / std::int64_t(daemon_count()));
    const auto share = Duration{1s} * assigned_->group_world_size / native::heartbeats_per_second;
    backoff_ = std::min(backoff_, std::max(quickest, std::min(config_.lease / 10, share)));
}

// ---- answers of peers ----

void ClientCore::on(const PeerAnswered& input, Instant now) {
    const auto asked = asked_.find(input.number);
    if (asked == asked_.end()) return;
    // Whoever cannot prove its answer is not that peer, and has said nothing.
    const auto answer =
        input.answer && peer_proof_.is_genuine(asked->second, *input.answer) ? input.answer : std::nullopt;
    asked_.erase(asked);
    fencing_.answered(input.number, answer, now);
    if (answer && assigned_ && answer->round == assigned_->round && !answer->leader_lost)
        look_for_daemon(answer->leader, now);
}

/// A peer has it. `named`: where, if there are several.
void ClientCore::look_for_daemon(std::string_view named, Instant now) {
    // This peer has reached the next leader while this node waits for the lost one.
    const bool is_old = now >= attempted_at_ + config_.lease / 20;
    // Its word is newer than an earlier silence of the named one, which may have been suspended, and leads since then.
    auto leader = elsewhere(named);
    // A peer notices 0.4 lease after the leader's last message that it is lost; its word may be as old.
    const bool may_be_stale = now < heard_until_ + config_.lease * 55 / 100;
    if (leader && leader == last_leader_ && is_silent(*leader, now) && may_be_stale) return;
    // A leader that all come back to at once answers in its time: another connection would only keep it busier.
    const bool waits_there = link_ != Link::connecting && named == describe(endpoint());
    const bool in_vain =
        has_choice() && !waits_there && (link_ == Link::connecting || !link_answered_) && (is_old || leader);
    if (link_ != Link::none && in_vain) {
        out_.push_back(kept_ ? ClientOutput(Abandon{}) : ClientOutput(Disconnect{}));
        link_ = Link::none;
        if (is_old) note_timeout(now);
        try_next_endpoint(now);
    }
    if (link_ == Link::none) {
        if (leader && has_choice()) named_leader_ = std::move(leader);
        retry_at_ = now;
        backoff_ = config_.backoff_min;
    }
}

void ClientCore::on(const TimePassed&, Instant) {}

}  // namespace muster::rendezvous
