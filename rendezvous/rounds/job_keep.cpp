// What this daemon keeps of a job, and how the next daemon continues it.
//
// Kept is everything that decides or was sent. Not kept is what only this daemon can know: connections, clocks,
// progress messages already sent. The actions of a step are executed when its records are persisted. So everything that
// an agent has received is on record, and an agent asks again for what it has not received.
#include <algorithm>
#include <utility>

#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/job_record.h"

namespace muster::rendezvous {

namespace {

/// From a daemon's end to the next one's start, where that is quick; longer, and a notice is another one.
constexpr Duration takeover_max = 10s;

}  // namespace

/// Nobody was heard by this daemon, so all silence begins now, and all are away. Nobody who ran can have done so for
/// longer than this daemon believes: every agent counts from before the last daemon's end.
Job::Job(const ServerConfig& config, KeptJob kept, Instant now)
    : id_(std::move(kept.facts.id)),
      config_(config),
      terms_(kept.facts.terms),
      terms_by_(std::move(kept.facts.terms_by)),
      no_seal_before_(kept.facts.unsure ? now + lease() : Instant::min()),
      taught_until_(kept.facts.unsure ? now + lost_timeout() + 2 * lease() : Instant::min()),
      taught_(kept.facts.taught),
      pasts_(std::move(kept.facts.pasts)),
      next_arrival_(kept.facts.next_arrival),
      round_(std::move(kept.round)),
      next_round_(kept.facts.next_round),
      restarts_used_(kept.facts.restarts_used),
      checkpoint_step_(kept.facts.checkpoint_step),
      restarts_stalled_(kept.facts.restarts_stalled),
      short_of_nodes_(kept.facts.short_of_nodes),
      reports_awaited_since_(now),
      ending_(std::move(kept.facts.ending)),
      empty_since_(kept.members.empty() ? now : no_deadline),
      left_(kept.facts.left),
      ended_on_(std::move(kept.facts.ended_on)),
      former_hosts_(std::move(kept.facts.former_hosts)) {
    // Never later than now: a wall clock may have been set back.
    const auto here = [&](std::int64_t at) {
        return std::min(now, Instant(std::chrono::nanoseconds(at) - config_.to_wall_clock));
    };
    for (const auto at : kept.facts.charges_at_ns) charged_at_.push_back(here(at));
    if (kept.facts.parted_at_ns != 0) round_.parted_at = here(kept.facts.parted_at_ns);
    if (round_.ended) round_.ended_at = here(kept.facts.round_ended_at_ns);
    // An end of long ago is nobody's any more, and is no news either. Not earlier: nobody is late for what is past.
    ended_at_ = std::max(here(kept.facts.ended_at_ns), now - std::max(config_.end_linger, lost_timeout()));
    announced_ = ending_ && (kept.members.empty() || ended_at_ + config_.end_linger <= now);
    if (kept.facts.noticed_at_ns != 0) {
        noticed_at_ = here(kept.facts.noticed_at_ns);
        notice_why_ = std::move(kept.facts.notice_why);
        // Agents that had no answer from the daemon before this one ask again as soon as they have found it.
        if (now - noticed_at_ < lease() + takeover_max) notice_lasts_until_ = now + lease();
    }
    waiting_sent_at_ = now - config_.gathering_interval;  // whoever comes is told at once
    goodput_ = GoodputLedger::from(kept.facts.goodput, config_.to_wall_clock, now);
    round_.failures = round_.failures.on_clock(-config_.to_wall_clock);
    round_.sealed_at = now;
    tiers_.resume();
    failures_revision_ = round_.failures.revision();
    if (!round_.failures.empty()) {
        failures_record_ = encode_failures(id_, round_.failures.on_clock(config_.to_wall_clock));
    }
    groups_revision_ = groups_revision();
    if (groups_revision_ != 0) groups_record_ = encode_groups(id_, round_);
    for (auto& member : kept.members) {
        member.record = encode_member(id_, member);
        member.last_received = now;
        member.judged_at = now + lease();
        check_again_at(member.judged_at);
        count(members_.emplace(member.node.incarnation, std::move(member)).first->second, +1);
    }
    if (config_.secret) round_.secret.find_again(config_.secret(id_));
    record_ = encode_job(facts(), round_);
}

JobFacts Job::facts() const {
    const auto on_wall_clock = [&](Instant at) {
        return std::chrono::nanoseconds(at.time_since_epoch() + config_.to_wall_clock).count();
    };
    std::vector<std::int64_t> charges;
    for (const auto charged : charged_at_) charges.push_back(on_wall_clock(charged));
    return {.id = id_,
            .terms = terms_,
            .terms_by = terms_by_,
            .next_arrival = next_arrival_,
            .next_round = next_round_,
            .restarts_used = restarts_used_,
            .charges_at_ns = std::move(charges),
            .round_ended_at_ns = round_.ended ? on_wall_clock(round_.ended_at) : 0,
            .parted_at_ns = round_.parted_at == Instant::min() ? 0 : on_wall_clock(round_.parted_at),
            .checkpoint_step = checkpoint_step_,
            .restarts_stalled = restarts_stalled_,
            .pasts = pasts_,
            .unsure = no_seal_before_ > settled_at_,
            .taught = taught_,
            .short_of_nodes = short_of_nodes_,
            .left = left_,
            .ending = ending_,
            .ended_at_ns = ending_ ? on_wall_clock(ended_at_) : 0,
            .ended_on = ended_on_,
            .former_hosts = former_hosts_,
            .noticed_at_ns = noticed_at_ == no_deadline ? 0 : on_wall_clock(noticed_at_),
            .notice_why = notice_why_,
            .goodput = goodput_.kept(config_.to_wall_clock)};
}

std::uint64_t Job::groups_revision() const {
    return round_.failures.count() + round_.activities.revision();
}

void Job::keep_records(const Turn& turn) {
    if (!config_.keep_records) return;
    if (forgotten_) return drop_records(turn);
    if (!std::exchange(unkept_, false)) return;
    for (const auto incarnation : std::exchange(gone_, {}))
        turn.step.records.push_back({member_key(id_, incarnation), {}});
    for (const auto incarnation : std::exchange(unkept_nodes_, {}))
        if (const auto found = members_.find(incarnation); found != members_.end())
            keep(member_key(id_, incarnation), encode_member(id_, found->second), found->second.record, turn);
    if (failures_revision_ != round_.failures.revision()) {
        failures_revision_ = round_.failures.revision();
        const auto& failures = round_.failures;
        keep(failures_key(id_),
             failures.empty() ? std::string{} : encode_failures(id_, failures.on_clock(config_.to_wall_clock)),
             failures_record_, turn);
    }
    if (groups_revision_ != groups_revision()) {
        groups_revision_ = groups_revision();
        keep(groups_key(id_), groups_revision_ == 0 ? std::string{} : encode_groups(id_, round_), groups_record_, turn);
    }
    keep(job_key(id_), encode_job(facts(), round_), record_, turn);
}

void Job::keep(std::string key, std::string value, std::string& known, const Turn& turn) {
    if (value == known) return;
    known = value;
    turn.step.records.push_back({std::move(key), std::move(value)});
}

void Job::drop_records(const Turn& turn) {
    for (const auto& [incarnation, member] : members_)
        if (!member.record.empty()) turn.step.records.push_back({member_key(id_, incarnation), {}});
    for (const auto incarnation : gone_) turn.step.records.push_back({member_key(id_, incarnation), {}});
    if (!failures_record_.empty()) turn.step.records.push_back({failures_key(id_), {}});
    if (!groups_record_.empty()) turn.step.records.push_back({groups_key(id_), {}});
    if (!record_.empty()) turn.step.records.push_back({job_key(id_), {}});
}

}  // namespace muster::rendezvous
