// How a daemon keeps the account of a job's time, and how the next one continues it.
#include <algorithm>

#include "rendezvous/base/known_step.h"
#include "rendezvous/events/goodput_ledger.h"

namespace muster {

/// Calls `use` with each number but the instants, and with the least and the most that it can be.
template <class Use>
void GoodputLedger::each_number(Use use) {
    // Three years: sums of such numbers do not overflow.
    constexpr auto time_max = Duration(3 * 365 * 24h).count();
    use(over_, 0, 1);
    use(pending_, 0, 1);
    use(current_, 0, std::int64_t{fixed_buckets} - 1);
    use(ranks_, 0, ranks_max);
    use(ranks_missing_, 0, ranks_max);
    use(totals_.wall_clock, 0, time_max);
    use(totals_.lost_work, 0, time_max);
    use(totals_.lost_step_count, 0, step_max);
    use(totals_.failed_round_count, 0, UINT32_MAX);
    for (auto& bucket : totals_.buckets) use(bucket, 0, time_max);
    for (auto* round : {&round_, &left_}) {
        bool is_known = round->has_value();
        use(is_known, 0, 1);
        if (!is_known) continue;
        if (!*round) *round = OpenRound{};
        use((*round)->first_step, -1, step_max);
        use((*round)->last_step, -1, step_max);
        use((*round)->stepping, 0, time_max);
        use((*round)->checkpoint_step, -1, step_max);
    }
}

GoodputLedger::Kept GoodputLedger::kept(Duration to_wall_clock) const {
    if (!began_) return {};
    Kept kept{.numbers = {}, .sections = totals_.sections};
    for (const auto instant : {*began_, since_})
        kept.numbers.push_back(Duration(instant.time_since_epoch() + to_wall_clock).count());
    auto copy = *this;
    copy.each_number([&kept](const auto& value, std::int64_t, std::int64_t) {
        if constexpr (requires { value.count(); })
            kept.numbers.push_back(value.count());
        else
            kept.numbers.push_back(static_cast<std::int64_t>(value));
    });
    return kept;
}

GoodputLedger GoodputLedger::from(const Kept& kept, Duration to_wall_clock, Instant now) {
    const auto& numbers = kept.numbers;
    GoodputLedger ledger;
    if (numbers.size() < 2 || kept.sections.size() > sections_max) return {};
    if (numbers[0] < 0 || numbers[1] < numbers[0]) return {};
    std::size_t next = 2;
    bool is_good = true;
    ledger.each_number([&]<class Value>(Value& value, std::int64_t least, std::int64_t most) {
        const auto number = next < numbers.size() ? numbers[next] : INT64_MIN;
        ++next;
        is_good = is_good && number >= least && number <= most;
        if (is_good) value = static_cast<Value>(number);
    });
    // Never later than now: a wall clock may have been set back.
    const auto here = [&](std::int64_t at) {
        return now + Duration(std::min<std::int64_t>(at - Duration(now.time_since_epoch() + to_wall_clock).count(), 0));
    };
    constexpr auto years = Duration(3 * 365 * 24h);
    if (!is_good || next != numbers.size() || here(numbers[0]) < now - years) return {};
    ledger.began_ = here(numbers[0]);
    ledger.since_ = here(numbers[1]);
    ledger.weighed_from_ = now;
    ledger.totals_.sections = kept.sections;
    auto& left = ledger.left_;
    if (left && (left->first_step < 0 || left->last_step < left->first_step)) left.reset();
    return ledger;
}

}  // namespace muster
