#include "rendezvous/events/goodput_ledger.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "rendezvous/base/known_step.h"
#include "rendezvous/base/text/decimal.h"
#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

constexpr auto day_ns = Duration(24h).count();
/// Not a name that a section can have.
constexpr std::string_view data_wait{};

/// Sections, and with them the wait for data.
SectionTimes times_in(const EventFacts& facts) {
    auto times = facts.sections;
    if (facts.data_wait_ms > 0)
        times.push_back({std::string(data_wait), std::min(facts.data_wait_ms, step_max / 1000) * 1'000'000});
    return times;
}

std::int64_t time_in(const SectionTimes& times, std::string_view name) {
    const auto found = std::ranges::find(times, name, &SectionTime::name);
    return found == times.end() ? 0 : std::max<std::int64_t>(found->time_ns, 0);
}

/// So long before `now`, but not before `since`. -1: at `now`.
Instant before(Instant now, std::int64_t ms, Instant since) {
    return ms <= 0 ? now : std::max(since, now - std::chrono::milliseconds(std::min(ms, day_ns / 1'000'000)));
}

}  // namespace

std::string GoodputLedger::Totals::name_of(std::size_t bucket) const {
    return bucket < fixed_buckets ? std::string(enumerator_name(static_cast<TimeBucket>(bucket)))
                                  : cat("section:", sections[bucket - fixed_buckets]);
}

double GoodputLedger::Totals::goodput() const {
    if (wall_clock <= Duration::zero()) return 0;
    return static_cast<double>((trained() - lost_work).count()) / static_cast<double>(wall_clock.count());
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
    told_.reset();
    leave_round({});
    round_ = OpenRound();
}

TimeBucket GoodputLedger::bucket_of(std::string_view section) {
    if (section == data_wait) return TimeBucket::data_wait;
    if (section == checkpoint_section) return TimeBucket::checkpoint_blocked;
    return static_cast<TimeBucket>(fixed_buckets + section_place(totals_.sections, section));
}

/// A word of steps: of the time since the last one, each section has as much as it has grown, and training the rest.
void GoodputLedger::divide(const EventFacts& facts, Instant until) {
    auto times = times_in(facts);
    for (const auto& [section, time_ns] : times) {
        const auto grown = std::clamp<std::int64_t>(told_ ? time_ns - time_in(*told_, section) : 0, 0, day_ns);
        const auto end = std::min(since_ + Duration(grown), until);
        if (is_stepping() && end > since_) add(bucket_of(section), end);
    }
    if (is_stepping()) add(TimeBucket::stepping, until);
    told_ = std::move(times);
}

void GoodputLedger::begin_hang(const EventFacts& facts, Instant now) {
    hangs_ = true;
    if (!is_stepping()) return;
    divide(facts, before(now, facts.hung_ms, since_));
    current_ = TimeBucket::hung;
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
        const auto loading = std::min(time_in(facts.sections, checkpoint_section), day_ns);
        add(TimeBucket::loading_checkpoint, std::min(since_ + Duration(loading), now));
    }
    add(pending_ ? TimeBucket::starting : current_, now);
    pending_ = false;
    current_ = hangs_ ? TimeBucket::hung : TimeBucket::stepping;
    if (!round_) round_ = OpenRound{.resumed = true};  // A restarted daemon has not seen its seal.
    told_ = times_in(facts);
    if (round_->first_step >= 0) return;
    const auto step = known_step(facts.step), first = known_step(facts.first_step);
    round_->first_step = first < 0 || round_->resumed ? std::max(step, first) : first;
    count_lost(first);
}

void GoodputLedger::end_round(const EventFacts& facts, Instant now) {
    const bool changes = facts.reason == "node_joined" || facts.reason == "node_left";
    if (!changes) ++totals_.failed_round_count;
    const auto failed_at = is_open() ? before(now, facts.detecting_ms, since_) : now;
    divide(facts, failed_at);
    switch_to(TimeBucket::detecting, failed_at);
    switch_to(changes ? TimeBucket::reconfiguring : TimeBucket::stopping, now);
    if (round_) round_->last_step = std::max(round_->first_step, known_step(facts.step));
}

/// The first step of a round that resumes from the newest checkpoint. -1: unknown, because the program may write
/// checkpoints where nobody looks.
std::int64_t GoodputLedger::after_checkpoint() const {
    return left_ && left_->checkpoint_step >= 0 ? left_->checkpoint_step + 1 : -1;
}

/// Nothing if the next round's steps have no numbers, so each round counts from 1. Else its share of the round's steps
/// is its share of the round's time.
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
    switch (event.kind) {
        case EventKind::job_started: return begin(event.facts, now);
        case EventKind::round_sealed: begin_round(now); return note_ranks(event.facts);
        case EventKind::round_resumed:
            round_.reset();  // This round may be the one that an earlier daemon knew.
            begin_round(now);
            round_->resumed = true;
            return note_ranks(event.facts);
        case EventKind::round_stepping: return begin_steps(event.facts, now);
        case EventKind::round_progress: return divide(event.facts, now);
        case EventKind::hang_suspected: return begin_hang(event.facts, now);
        case EventKind::hang_over:
            hangs_ = false;
            if (current_ == TimeBucket::hung) switch_to(TimeBucket::stepping, now);
            return divide(event.facts, now);
        case EventKind::round_ended: return end_round(event.facts, now);
        case EventKind::round_drained: switch_to(TimeBucket::waiting_nodes, now); return leave_round(event.facts);
        case EventKind::job_ended:
            divide(event.facts, now);
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
    totals.is_stepping = is_stepping();
    if (is_open())
        totals.pending = open;
    else
        count(totals, current_, now);
    totals.wall_clock = now - *began_;
    return totals;
}

std::string GoodputLedger::sentence(Instant now) const {
    const auto totals = this->totals(now);
    if (!began_ || totals.wall_clock <= Duration::zero()) return {};
    const auto stepping = totals.trained();
    const auto unmeasured = totals.of(TimeBucket::unmeasured) + (pending_ ? totals.pending : Duration::zero());
    const auto wall_clock = describe(totals.wall_clock);
    auto text = stepping > Duration::zero() ? cat(one_decimal(100 * totals.goodput()), " % of ", wall_clock, " trained")
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
    tell(totals.of(TimeBucket::checkpoint_blocked), "blocked by checkpoints");
    for (auto i = fixed_buckets; i < totals.bucket_count(); ++i)
        tell(totals.buckets[i], cat("in section ", totals.sections[i - fixed_buckets]));
    tell(totals.of(TimeBucket::hung), "hung");
    tell(totals.of(TimeBucket::detecting), "until failures were known");
    tell(totals.of(TimeBucket::stopping), "stopping");
    tell(totals.of(TimeBucket::reconfiguring), "for changes of nodes");
    const auto failures = totals.failed_round_count;
    tell(totals.lost_work,
         cat("of work lost (", totals.lost_step_count, totals.lost_step_count == 1 ? " step, " : " steps, ", failures,
             failures == 1 ? " failure)" : " failures)"));
    return rest.empty() ? text : cat(text, "; ", join(rest, ", "));
}

}  // namespace muster
