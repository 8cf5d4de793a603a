#include "rendezvous/events/goodput_ledger.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

std::string percent(double share) {
    const auto tenths = static_cast<std::int64_t>(std::lround(share * 1000));
    return tenths % 10 == 0 ? cat(tenths / 10, " %") : cat(tenths / 10, ".", tenths % 10, " %");
}

}  // namespace

std::string_view name(TimeBucket bucket) {
    switch (bucket) {
        case TimeBucket::waiting_nodes: return "waiting_nodes";
        case TimeBucket::starting: return "starting";
        case TimeBucket::stepping: return "stepping";
        case TimeBucket::unmeasured: return "unmeasured";
        case TimeBucket::stopping: return "stopping";
        case TimeBucket::reconfiguring: return "reconfiguring";
    }
    return "unknown";
}

double GoodputLedger::Totals::goodput() const {
    if (wall_clock <= Duration::zero()) return 0;
    return static_cast<double>((of(TimeBucket::stepping) - lost_work).count()) /
           static_cast<double>(wall_clock.count());
}

void GoodputLedger::add(TimeBucket bucket, Instant until) {
    totals_.buckets[static_cast<std::size_t>(bucket)] += until - since_;
    if (bucket == TimeBucket::stepping && round_) round_->stepping += until - since_;
    since_ = until;
}

/// Settles what came before.
void GoodputLedger::switch_to(TimeBucket bucket, Instant now) {
    add(pending_ ? TimeBucket::unmeasured : current_, now);
    pending_ = false;
    current_ = bucket;
}

void GoodputLedger::begin_round(Instant now) {
    switch_to(TimeBucket::starting, now);
    pending_ = true;
    round_ = OpenRound();
}

void GoodputLedger::end_round(const EventFacts& facts, Instant now) {
    const bool changes = facts.reason == "node_joined" || facts.reason == "node_left";
    if (!changes) ++totals_.failed_round_count;
    switch_to(changes ? TimeBucket::reconfiguring : TimeBucket::stopping, now);
    if (round_) round_->last_step = std::max(round_->first_step, facts.step);
}

/// Its share of the round's steps is its share of the round's time. A checkpoint that nobody knows of may still be
/// there (the program may write it anywhere), so nothing counts as lost without one.
void GoodputLedger::count_lost(std::int64_t checkpoint_step) {
    if (!round_ || checkpoint_step < 0 || round_->first_step < 0 || round_->last_step < round_->first_step)
        return round_.reset();
    const auto done = round_->last_step - round_->first_step + 1;
    const auto lost = std::clamp<std::int64_t>(round_->last_step - checkpoint_step, 0, done);
    const auto share = static_cast<double>(lost) / static_cast<double>(done);
    const auto time = Duration(std::llround(static_cast<double>(round_->stepping.count()) * share));
    totals_.lost_work += std::min(time, round_->stepping);
    totals_.lost_step_count += lost;
    round_.reset();
}

void GoodputLedger::take(const Event& event, Instant now) {
    if (over_ && event.kind != EventKind::job_started) return;
    if (!began_) began_ = since_ = now;
    now = std::max(now, since_);  // A turn of the daemon's loop may have begun before its state was read.
    switch (event.kind) {
        case EventKind::job_started:
            // Another run of the job under the same name, whose time is its own.
            if (over_) *this = GoodputLedger{};
            if (!began_) began_ = since_ = now;
            return;
        case EventKind::round_sealed:
        case EventKind::round_resumed: return begin_round(now);
        case EventKind::round_stepping:
            add(pending_ ? TimeBucket::starting : current_, now);
            pending_ = false;
            current_ = TimeBucket::stepping;
            if (!round_) round_ = OpenRound();  // A restarted daemon has not seen its seal.
            if (round_->first_step < 0) round_->first_step = event.facts.step;
            return;
        case EventKind::round_ended: return end_round(event.facts, now);
        case EventKind::round_drained:
            switch_to(TimeBucket::waiting_nodes, now);
            return count_lost(event.facts.checkpoint_step);
        case EventKind::job_ended:
            switch_to(current_, now);
            if (event.facts.outcome != "succeeded") count_lost(event.facts.checkpoint_step);
            over_ = true;
            totals_.wall_clock = now - *began_;
            return;
        default: return;
    }
}

GoodputLedger::Totals GoodputLedger::totals(Instant now) const {
    auto totals = totals_;
    if (!began_ || over_) return totals;
    now = std::max(now, since_);
    const auto open = now - since_;
    if (pending_)
        totals.pending = open;
    else
        totals.buckets[static_cast<std::size_t>(current_)] += open;
    totals.wall_clock = now - *began_;
    return totals;
}

std::vector<std::int64_t> GoodputLedger::kept(Duration to_wall_clock) const {
    if (!began_) return {};
    const auto at = [&](Instant instant) { return Duration(instant.time_since_epoch() + to_wall_clock).count(); };
    const auto round = round_.value_or(OpenRound{});
    std::vector<std::int64_t> numbers{at(*began_),
                                      at(since_),
                                      over_ ? 1 : 0,
                                      pending_ ? 1 : 0,
                                      static_cast<std::int64_t>(current_),
                                      totals_.wall_clock.count(),
                                      totals_.lost_work.count(),
                                      totals_.lost_step_count,
                                      totals_.failed_round_count,
                                      round_ ? 1 : 0,
                                      round.first_step,
                                      round.last_step,
                                      round.stepping.count()};
    for (const auto bucket : totals_.buckets) numbers.push_back(bucket.count());
    return numbers;
}

GoodputLedger GoodputLedger::from(const std::vector<std::int64_t>& kept, Duration to_wall_clock, Instant now) {
    // Three years: sums of such numbers do not overflow.
    constexpr auto time_max = Duration(3 * 365 * 24h).count();
    GoodputLedger ledger;
    constexpr std::size_t before_buckets = 13;
    if (kept.size() != before_buckets + time_bucket_count) return ledger;
    const auto in = [](std::int64_t number, std::int64_t least, std::int64_t most) {
        return number >= least && number <= most;
    };
    const auto here = [&](std::int64_t at) { return at - Duration(now.time_since_epoch() + to_wall_clock).count(); };
    // Never later than now: a wall clock may have been set back.
    if (!in(kept[0], 0, INT64_MAX) || !in(kept[1], kept[0], INT64_MAX)) return ledger;
    const auto began = std::min<std::int64_t>(here(kept[0]), 0), since = std::min<std::int64_t>(here(kept[1]), 0);
    if (began < -time_max || !in(kept[4], 0, static_cast<std::int64_t>(time_bucket_count) - 1)) return ledger;
    for (const auto i : {5, 6, 7, 8, 12})
        if (!in(kept[static_cast<std::size_t>(i)], 0, time_max)) return ledger;
    if (!in(kept[8], 0, UINT32_MAX) || !in(kept[10], -1, time_max) || !in(kept[11], -1, time_max)) return ledger;
    for (std::size_t i = 0; i < time_bucket_count; ++i) {
        if (!in(kept[before_buckets + i], 0, time_max)) return GoodputLedger{};
        ledger.totals_.buckets[i] = Duration(kept[before_buckets + i]);
    }
    ledger.began_ = now + Duration(began);
    ledger.since_ = now + Duration(since);
    ledger.over_ = kept[2] != 0;
    ledger.pending_ = kept[3] != 0;
    ledger.current_ = static_cast<TimeBucket>(kept[4]);
    ledger.totals_.wall_clock = Duration(kept[5]);
    ledger.totals_.lost_work = Duration(kept[6]);
    ledger.totals_.lost_step_count = kept[7];
    ledger.totals_.failed_round_count = static_cast<std::uint32_t>(kept[8]);
    if (kept[9] != 0) ledger.round_ = OpenRound{kept[10], kept[11], Duration(kept[12])};
    return ledger;
}

std::string GoodputLedger::sentence(Instant now) const {
    const auto totals = this->totals(now);
    if (!began_ || totals.wall_clock <= Duration::zero()) return {};
    const auto stepping = totals.of(TimeBucket::stepping);
    const auto unmeasured = totals.of(TimeBucket::unmeasured) + totals.pending;
    const auto wall_clock = describe(totals.wall_clock);
    auto text = stepping > Duration::zero() ? cat(percent(totals.goodput()), " of ", wall_clock, " trained")
                : unmeasured == Duration::zero()
                    ? cat("no worker ran in ", wall_clock)
                    : cat("workers ran for ", describe(unmeasured), " of ", wall_clock, " and reported no steps");
    std::vector<std::string> rest;
    const auto tell = [&rest](Duration time, std::string_view what) {
        if (time >= 100ms) rest.push_back(cat(describe(time), " ", what));
    };
    if (stepping > Duration::zero()) tell(unmeasured, "in rounds without steps");
    tell(totals.of(TimeBucket::waiting_nodes), "waiting for nodes");
    tell(totals.of(TimeBucket::starting), "starting");
    tell(totals.of(TimeBucket::stopping), "stopping");
    tell(totals.of(TimeBucket::reconfiguring), "for changes of nodes");
    const auto failures = totals.failed_round_count;
    tell(totals.lost_work,
         cat("of work lost (", totals.lost_step_count, totals.lost_step_count == 1 ? " step, " : " steps, ", failures,
             failures == 1 ? " failure)" : " failures)"));
    return rest.empty() ? text : cat(text, "; ", join(rest, ", "));
}

}  // namespace muster
