#include "rendezvous/events/goodput_ledger.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "rendezvous/base/known_step.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

constexpr std::int64_t ranks_max = 1 << 30;
constexpr auto day_ms = std::chrono::milliseconds(24h).count();

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
        case TimeBucket::data_wait: return "data_wait";
        case TimeBucket::hung: return "hung";
        case TimeBucket::unmeasured: return "unmeasured";
        case TimeBucket::stopping: return "stopping";
        case TimeBucket::reconfiguring: return "reconfiguring";
        case TimeBucket::queued: return "queued";
        case TimeBucket::loading_checkpoint: return "loading_checkpoint";
    }
    return "unknown";
}

double GoodputLedger::Totals::goodput() const {
    if (wall_clock <= Duration::zero()) return 0;
    return static_cast<double>((of(TimeBucket::stepping) - lost_work).count()) /
           static_cast<double>(wall_clock.count());
}

void GoodputLedger::count(Totals& totals, TimeBucket bucket, Instant until) const {
    const auto weighed = std::max(until - std::max(since_, weighed_from_), Duration::zero());
    const auto seconds = std::chrono::duration<double>(weighed).count();
    totals.buckets[static_cast<std::size_t>(bucket)] += until - since_;
    totals.rank_seconds[static_cast<std::size_t>(bucket)] += seconds * static_cast<double>(ranks_);
    totals.scaled_down += seconds * static_cast<double>(ranks_missing_);
}

void GoodputLedger::note_ranks(const EventFacts& facts) {
    ranks_ = std::clamp<std::int64_t>(facts.rank_count, 0, ranks_max);
    ranks_missing_ = std::clamp<std::int64_t>(facts.rank_count_max, ranks_, ranks_max) - ranks_;
}

void GoodputLedger::add(TimeBucket bucket, Instant until) {
    count(totals_, bucket, until);
    if (bucket == TimeBucket::stepping && round_) round_->stepping += until - since_;
    since_ = until;
}

/// Settles what came before.
void GoodputLedger::switch_to(TimeBucket bucket, Instant now) {
    add(pending_ ? TimeBucket::unmeasured : current_, now);
    pending_ = false;
    current_ = bucket;
}

/// Another run of the job under the same name has a time of its own.
void GoodputLedger::begin(const EventFacts& facts, Instant now) {
    if (over_) *this = GoodputLedger{};
    if (!began_) began_ = since_ = now;
    if (totals_.of(TimeBucket::queued) > Duration::zero()) return;  // It is told again after a restart of the daemon.
    const auto queued = std::chrono::milliseconds(std::clamp<std::int64_t>(facts.queued_ms, 0, queued_ms_max));
    *began_ -= queued;
    totals_.buckets[static_cast<std::size_t>(TimeBucket::queued)] += queued;
}

void GoodputLedger::begin_round(Instant now) {
    switch_to(TimeBucket::starting, now);
    pending_ = true;
    hangs_ = false;
    data_wait_ms_ = -1;
    leave_round({});
    round_ = OpenRound();
}

/// Of the time since the last such report, as much was spent on data as the report has more. The first one says from
/// where they count.
void GoodputLedger::split_stepping(std::int64_t data_wait_ms, Instant now) {
    if (data_wait_ms < 0 || pending_ || current_ != TimeBucket::stepping) return;
    if (data_wait_ms_ < 0) data_wait_ms_ = data_wait_ms;
    const auto grown = std::clamp<std::int64_t>(data_wait_ms - data_wait_ms_, 0, day_ms);
    data_wait_ms_ = data_wait_ms;
    add(TimeBucket::data_wait, std::min(since_ + std::chrono::milliseconds(grown), now));
    add(TimeBucket::stepping, now);
}

/// A round without steps leaves the one before it to be resumed.
void GoodputLedger::leave_round(const EventFacts& facts) {
    if (round_ && round_->first_step >= 0) {
        count_lost(after_checkpoint());
        left_ = round_;
        left_->last_step = std::max({left_->first_step, left_->last_step, known_step(facts.step)});
        left_->checkpoint_step = known_step(facts.checkpoint_step);
    }
    round_.reset();
}

void GoodputLedger::begin_steps(const EventFacts& facts, Instant now) {
    if (pending_) {
        const auto loading = std::chrono::milliseconds(std::clamp<std::int64_t>(facts.loading_ms, 0, day_ms));
        add(TimeBucket::loading_checkpoint, std::min(since_ + loading, now));
    }
    add(pending_ ? TimeBucket::starting : current_, now);
    pending_ = false;
    current_ = hangs_ ? TimeBucket::hung : TimeBucket::stepping;
    if (!round_) round_ = OpenRound{.resumed = true};  // A restarted daemon has not seen its seal.
    if (data_wait_ms_ < 0) data_wait_ms_ = facts.data_wait_ms;
    if (round_->first_step >= 0) return;
    const auto step = known_step(facts.step), first = known_step(facts.first_step);
    round_->first_step = first < 0 || round_->resumed ? std::max(step, first) : first;
    count_lost(first >= 0 ? first : step);
}

void GoodputLedger::end_round(const EventFacts& facts, Instant now) {
    const bool changes = facts.reason == "node_joined" || facts.reason == "node_left";
    if (!changes) ++totals_.failed_round_count;
    switch_to(changes ? TimeBucket::reconfiguring : TimeBucket::stopping, now);
    if (round_) round_->last_step = std::max(round_->first_step, known_step(facts.step));
}

/// The first step of a round that resumes from the newest checkpoint. -1: unknown, because the program may write
/// checkpoints where nobody looks.
std::int64_t GoodputLedger::after_checkpoint() const {
    return left_ && left_->checkpoint_step >= 0 ? left_->checkpoint_step + 1 : -1;
}

/// Its share of the round's steps is its share of the round's time.
void GoodputLedger::count_lost(std::int64_t first_repeated) {
    const auto round = std::exchange(left_, std::nullopt);
    if (!round || first_repeated < 0) return;
    const auto done = round->last_step - round->first_step + 1;
    const auto lost = std::clamp<std::int64_t>(round->last_step - first_repeated + 1, 0, done);
    const auto share = static_cast<double>(lost) / static_cast<double>(done);
    const auto time = Duration(std::llround(static_cast<double>(round->stepping.count()) * share));
    totals_.lost_work += std::min(time, round->stepping);
    totals_.lost_step_count = std::min(totals_.lost_step_count + lost, step_max);
}

void GoodputLedger::take(const Event& event, Instant now) {
    if (over_ && event.kind != EventKind::job_started) return;
    if (!began_) began_ = since_ = now;
    now = std::max(now, since_);  // A turn of the daemon's loop may have begun before its state was read.
    split_stepping(event.facts.data_wait_ms, now);
    switch (event.kind) {
        case EventKind::job_started: return begin(event.facts, now);
        case EventKind::round_sealed: begin_round(now); return note_ranks(event.facts);
        case EventKind::round_resumed:
            round_.reset();  // This round may be the one that an earlier daemon knew.
            begin_round(now);
            round_->resumed = true;
            return note_ranks(event.facts);
        case EventKind::round_stepping: return begin_steps(event.facts, now);
        case EventKind::hang_suspected:
            hangs_ = true;
            if (!pending_ && current_ == TimeBucket::stepping) switch_to(TimeBucket::hung, now);
            return;
        case EventKind::hang_over:
            hangs_ = false;
            if (current_ == TimeBucket::hung) switch_to(TimeBucket::stepping, now);
            return;
        case EventKind::round_ended: return end_round(event.facts, now);
        case EventKind::round_drained: switch_to(TimeBucket::waiting_nodes, now); return leave_round(event.facts);
        case EventKind::job_ended:
            switch_to(current_, now);
            if (event.facts.outcome != "succeeded") leave_round(event.facts);
            count_lost(after_checkpoint());
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
    if (pending_ || (data_wait_ms_ >= 0 && current_ == TimeBucket::stepping))
        totals.pending = open;
    else
        count(totals, current_, now);
    totals.wall_clock = now - *began_;
    return totals;
}

std::vector<std::int64_t> GoodputLedger::kept(Duration to_wall_clock) const {
    if (!began_) return {};
    const auto at = [&](Instant instant) { return Duration(instant.time_since_epoch() + to_wall_clock).count(); };
    const auto round = round_.value_or(OpenRound{});
    const auto left = left_.value_or(OpenRound{});
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
                                      round.stepping.count(),
                                      left_ ? 1 : 0,
                                      left.first_step,
                                      left.last_step,
                                      left.stepping.count(),
                                      left.checkpoint_step,
                                      data_wait_ms_};
    for (const auto bucket : totals_.buckets) numbers.push_back(bucket.count());
    numbers.push_back(ranks_);
    numbers.push_back(ranks_missing_);
    return numbers;
}

GoodputLedger GoodputLedger::from(const std::vector<std::int64_t>& kept, Duration to_wall_clock, Instant now) {
    // Three years: sums of such numbers do not overflow.
    constexpr auto time_max = Duration(3 * 365 * 24h).count();
    GoodputLedger ledger;
    constexpr std::size_t before_buckets = 19;
    constexpr std::size_t size = before_buckets + time_bucket_count;
    // A daemon that counted no ranks has kept two numbers less.
    if (kept.size() != size && kept.size() != size + 2) return ledger;
    const auto in = [](std::int64_t number, std::int64_t least, std::int64_t most) {
        return number >= least && number <= most;
    };
    const auto here = [&](std::int64_t at) { return at - Duration(now.time_since_epoch() + to_wall_clock).count(); };
    // Never later than now: a wall clock may have been set back.
    if (!in(kept[0], 0, INT64_MAX) || !in(kept[1], kept[0], INT64_MAX)) return ledger;
    const auto began = std::min<std::int64_t>(here(kept[0]), 0), since = std::min<std::int64_t>(here(kept[1]), 0);
    if (began < -time_max || !in(kept[4], 0, static_cast<std::int64_t>(time_bucket_count) - 1)) return ledger;
    for (const auto i : {5, 6, 7, 8, 12, 16})
        if (!in(kept[static_cast<std::size_t>(i)], 0, time_max)) return ledger;
    if (!in(kept[8], 0, UINT32_MAX)) return ledger;
    for (const auto i : {10, 11, 14, 15, 17, 18})
        if (!in(kept[static_cast<std::size_t>(i)], -1, time_max)) return ledger;
    for (std::size_t i = 0; i < time_bucket_count; ++i) {
        if (!in(kept[before_buckets + i], 0, time_max)) return GoodputLedger{};
        ledger.totals_.buckets[i] = Duration(kept[before_buckets + i]);
    }
    if (kept.size() > size && in(kept[size], 0, ranks_max) && in(kept[size + 1], 0, ranks_max)) {
        ledger.ranks_ = kept[size];
        ledger.ranks_missing_ = kept[size + 1];
    }
    ledger.began_ = now + Duration(began);
    ledger.since_ = now + Duration(since);
    ledger.weighed_from_ = now;
    ledger.over_ = kept[2] != 0;
    ledger.pending_ = kept[3] != 0;
    ledger.current_ = static_cast<TimeBucket>(kept[4]);
    ledger.data_wait_ms_ = kept[18];
    ledger.totals_.wall_clock = Duration(kept[5]);
    ledger.totals_.lost_work = Duration(kept[6]);
    ledger.totals_.lost_step_count = kept[7];
    ledger.totals_.failed_round_count = static_cast<std::uint32_t>(kept[8]);
    if (kept[9] != 0) ledger.round_ = OpenRound{kept[10], kept[11], Duration(kept[12])};
    if (kept[13] != 0 && kept[14] >= 0 && kept[15] >= kept[14])
        ledger.left_ = OpenRound{kept[14], kept[15], Duration(kept[16]), kept[17]};
    return ledger;
}

std::string GoodputLedger::sentence(Instant now) const {
    const auto totals = this->totals(now);
    if (!began_ || totals.wall_clock <= Duration::zero()) return {};
    const auto stepping = totals.of(TimeBucket::stepping);
    const auto unmeasured = totals.of(TimeBucket::unmeasured) + (pending_ ? totals.pending : Duration::zero());
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
    tell(totals.of(TimeBucket::queued), "in the queue");
    tell(totals.of(TimeBucket::waiting_nodes), "waiting for nodes");
    tell(totals.of(TimeBucket::starting), "starting");
    tell(totals.of(TimeBucket::loading_checkpoint), "loading checkpoints");
    tell(totals.of(TimeBucket::data_wait), "waiting for data");
    tell(totals.of(TimeBucket::hung), "hung");
    tell(totals.of(TimeBucket::stopping), "stopping");
    tell(totals.of(TimeBucket::reconfiguring), "for changes of nodes");
    const auto failures = totals.failed_round_count;
    tell(totals.lost_work,
         cat("of work lost (", totals.lost_step_count, totals.lost_step_count == 1 ? " step, " : " steps, ", failures,
             failures == 1 ? " failure)" : " failures)"));
    return rest.empty() ? text : cat(text, "; ", join(rest, ", "));
}

}  // namespace muster
