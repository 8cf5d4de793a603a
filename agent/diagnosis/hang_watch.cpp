#include "agent/diagnosis/hang_watch.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"
#include "rendezvous/wire/native/who_is_missing.h"

namespace muster::agent {

namespace {

/// Looks come each second. Whoever was not looked at for so long was not idle for so long.
constexpr Duration sample_interval_max = 5s;
constexpr std::int64_t active_cpu_share = 50;   // 1/50 of a CPU: a runtime's own threads use less
constexpr std::uint64_t active_io_bytes = 256;  // more than the wake-ups that threads write to each other

bool is_stopped(char state) {
    return state == 'T' || state == 't';
}

bool is_stuck(char state) {
    return is_stopped(state) || state == 'D';
}

std::string_view description_of(char state) {
    switch (state) {
        case 'T': return "stopped by a signal";
        case 't': return "held by a debugger";
        case 'D': return "in uninterruptible sleep";
        case 'R': return "running";
        case 'Z': return "dead";
        default: return "asleep";
    }
}

std::string who(const WorkerSample& sample) {
    return cat("rank ", sample.rank, " (pid ", sample.pid, ")");
}

std::string state(const WorkerSample& sample) {
    std::string out(description_of(sample.state));
    if (!sample.where.empty()) out += cat(" in ", sample.where);
    return out;
}

std::string place(const WorkerSample& sample) {
    auto out = state(sample);
    if (sample.operation) out += cat(sample.operation->inside ? ", inside " : ", after ", sample.operation->name);
    if (!sample.section.empty()) out += cat(", section ", sample.section);
    return out;
}

bool began_operation(const WorkerSample& before, const WorkerSample& sample) {
    return sample.operation && (!before.operation || sample.operation->count != before.operation->count ||
                                sample.operation->inside != before.operation->inside);
}

void request_stacks(bool& told, std::uint32_t local_rank, HangStep& step) {
    if (!std::exchange(told, true)) step.stacks.push_back(local_rank);
}

}  // namespace

std::string HangWatch::named(const WorkerSample& sample) const {
    return config_.host.empty() ? who(sample) : cat(who(sample), " on ", config_.host);
}

std::vector<std::string> HangWatch::round_failed(Instant now) const {
    std::vector<std::string> lines;
    for (const auto& [local_rank, known] : workers_) {
        const auto& sample = known.last;
        const auto idle = now - known.active_at;
        const bool was_away = sample.operation && !sample.operation->inside && is_reportable(known, now);
        if (was_away)
            lines.push_back(cat(named(sample), " had done nothing for ", muster::describe(idle),
                                " when the round ended: ", place(sample),
                                known.place.empty() ? std::string() : cat("; it was at ", known.place)));
    }
    return lines;
}

// ---- where each stood, for every node's report ----

/// CPU time to give up waiting, print a traceback and leave the interpreter. Where others use the CPUs it takes longer.
constexpr Duration give_up_cpu = 3s;
constexpr Duration give_up_max = 10s;
/// A wait that ended well tells why others gave up at the same time, and nothing later.
constexpr Duration just_now = 3s;

/// Short pauses are everybody's, and in a section they are announced.
bool HangWatch::is_reportable(const Known& known, Instant now) const {
    const auto limit = std::min(config_.report_idle_after, config_.deadline_min);
    return limit > Duration::zero() && known.last.section.empty() && now - known.active_at >= limit;
}

void HangWatch::ask_places(Instant now, HangStep& step) {
    for (auto& [local_rank, known] : workers_)
        if (is_reportable(known, now) && !std::exchange(known.place_asked, true)) step.places.push_back(local_rank);
}

void HangWatch::stands_at(std::uint32_t local_rank, std::string place) {
    const auto found = workers_.find(local_rank);
    if (found != workers_.end() && found->second.place_asked) found->second.place = std::move(place);
}

WorkerActivity HangWatch::where_is(const Known& known, Instant now) {
    using std::chrono::milliseconds;
    const auto& sample = known.last;
    WorkerActivity out;
    out.rank = sample.rank;
    out.pid = sample.pid;
    out.idle_ms = static_cast<std::uint32_t>(std::chrono::duration_cast<milliseconds>(now - known.active_at).count());
    out.state = state(sample);
    out.inside = sample.operation && sample.operation->inside;
    if (sample.operation) out.operation = sample.operation->name;
    out.place = known.place;
    return out;
}

std::optional<WorkerActivity> HangWatch::where_was(const Known& known, Instant now) const {
    if (is_reportable(known, now)) return where_is(known, now);
    if (known.last_rest && now < known.rest_told_until && known.last.cpu - known.rest_cpu < give_up_cpu)
        return known.last_rest;
    return std::nullopt;
}

void HangWatch::worker_started(std::uint32_t rank) {
    std::erase_if(ended_, [rank](const auto& one) { return one.rank == static_cast<std::int32_t>(rank); });
}

void HangWatch::worker_ended(std::uint32_t local_rank, Instant now) {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) return;
    if (auto was = where_was(found->second, now)) ended_.push_back(*std::move(was));
    workers_.erase(found);
}

std::vector<WorkerActivity> HangWatch::activities(Instant now) const {
    auto all = ended_;
    for (const auto& [local_rank, known] : workers_)
        if (auto was = where_was(known, now)) all.push_back(*std::move(was));
    std::ranges::stable_sort(
        all, [](const auto& a, const auto& b) { return a.inside != b.inside ? !a.inside : a.idle_ms > b.idle_ms; });
    if (all.size() > native::activities_max) all.resize(native::activities_max);
    return all;
}

// ---- put together with what other nodes see ----

/// The share of an operation that it began longer ago says nothing of these minutes.
constexpr Duration lately = 15s;

std::vector<native::SeenWorker> HangWatch::seen(Instant now) const {
    std::vector<native::SeenWorker> all;
    for (const auto& [local_rank, known] : workers_) {
        const auto& operation = known.last.operation;
        const bool counts =
            operation && operation->count >= config_.operations_min && now - known.operation_since < lately;
        const auto percent = counts ? static_cast<std::int32_t>(operation->inside_share * 100) : -1;
        all.push_back({where_is(known, now), pace_of(known, now), percent});
    }
    const auto order = [](native::WorkerPace pace) {
        return pace == native::WorkerPace::overdue ? 0 : pace == native::WorkerPace::waiting ? 1 : 2;
    };
    // The daemon counts the job's steps by rank 0.
    std::ranges::stable_sort(all, {},
                             [&](const auto& worker) { return worker.at.rank == 0 ? -1 : order(worker.pace); });
    if (all.size() > native::activities_max) all.resize(native::activities_max);
    return all;
}

native::RankCounts HangWatch::counts(Instant now) const {
    native::RankCounts counts;
    for (const auto& [local_rank, known] : workers_) {
        const auto pace = pace_of(known, now);
        ++(is_stopped(known.last.state)          ? counts.stopped
           : pace == native::WorkerPace::overdue ? counts.overdue
           : pace == native::WorkerPace::waiting ? counts.waiting
           : !known.last.section.empty()         ? counts.section
                                                 : counts.training);
    }
    return counts;
}

native::WorkerPace HangWatch::pace_of(const Known& known, Instant now) const {
    const auto& sample = known.last;
    const auto limit = std::min(config_.report_idle_after, config_.deadline_min);
    if (!sample.operation || limit <= Duration::zero()) return native::WorkerPace::usual;
    // What is stopped is dealt with here.
    if (sample.operation->inside && !is_stuck(sample.state) && now - known.operation_since >= limit)
        return native::WorkerPace::waiting;
    const bool overdue = !sample.operation->inside && !is_stopped(sample.state) && is_overdue(known, now);
    return overdue ? native::WorkerPace::overdue : native::WorkerPace::usual;
}

HangStep HangWatch::job_seen(const native::JobSeen& seen, Instant now) {
    HangStep step;
    restart_after_pause(now);  // it may come before the first look
    for (auto& [local_rank, known] : workers_) {
        if (seen.waiting && pace_of(known, now) == native::WorkerPace::overdue) known.waited_for_by = seen.waiting;
        if (seen.waiting && known.last.rank == seen.waiting->rank)
            request_stacks(known.stacks_reported, local_rank, step);
    }
    const auto is_mine = [&](std::int32_t rank) {
        return std::ranges::any_of(workers_, [&](const auto& one) { return one.second.last.rank == rank; });
    };
    // Of its own worker this node knows more, and says so below, or has said it.
    for (const auto& line : seen.lines)
        if (!is_mine(line.rank)) step.notices.push_back(line.text);
    order_ends(now, step);
    return step;
}

std::string describe(const WorkerSample& sample) {
    return cat(who(sample), ": ", place(sample));
}

HangWatch::Known HangWatch::first_seen(const WorkerSample& sample, Instant now) {
    Known known;
    known.last = sample;
    known.active_at = known.section_since = known.heartbeat_at = known.operation_since = now;
    return known;
}

void HangWatch::begin_round() {
    workers_.clear();
    ended_.clear();
    last_sample_.reset();
    silence_reported_ = false;
    shares_since_.reset();
    straggler_reported_at_.reset();
}

void HangWatch::restart_after_pause(Instant now) {
    if (!last_sample_ || now - *last_sample_ <= sample_interval_max) return;
    for (auto& [local_rank, known] : workers_) {
        known.active_at = known.section_since = known.heartbeat_at = known.operation_since = now;
        if (known.stuck_since) known.stuck_since = now;
    }
}

HangStep HangWatch::judge(const std::vector<WorkerSample>& samples, Instant now) {
    HangStep step;
    restart_after_pause(now);
    std::erase_if(workers_, [&](const auto& entry) {
        return std::ranges::none_of(samples,
                                    [&](const WorkerSample& sample) { return sample.local_rank == entry.first; });
    });
    for (const auto& sample : samples) {
        const auto [found, is_new] = workers_.try_emplace(sample.local_rank);
        if (is_new || found->second.last.pid != sample.pid)
            found->second = first_seen(sample, now);
        else
            note(found->second, sample, now);
    }
    last_sample_ = now;
    for (auto& [local_rank, known] : workers_) {
        report_stuck(known, now, step);
        report_section(known, now, step);
        report_heartbeats(known, now, step);
    }
    report_silent(now, step);
    report_straggler(now, step);
    ask_places(now, step);
    order_ends(now, step);
    return step;
}

bool HangWatch::used_cpu(Duration used, Instant now) const {
    return used * active_cpu_share > (last_sample_ ? now - *last_sample_ : Duration::zero());
}

bool HangWatch::did_something(const Known& known, const WorkerSample& sample, Instant now) const {
    const auto& before = known.last;
    return used_cpu(sample.cpu - before.cpu, now) || sample.io_bytes > before.io_bytes + active_io_bytes ||
           began_operation(before, sample) || sample.section != before.section ||
           sample.heartbeats != before.heartbeats || sample.step != before.step;
}

bool HangWatch::seems_idle(const WorkerSample& sample, Instant now) const {
    const auto known = workers_.find(sample.local_rank);
    return known == workers_.end() || !did_something(known->second, sample, now);
}

void HangWatch::note(Known& known, const WorkerSample& sample, Instant now) {
    const auto& before = known.last;
    const bool began = began_operation(before, sample);
    // Of a child that ended meanwhile, the worker's own time has what it used. What is stopped waits for no child.
    const bool child_computed = !is_stuck(sample.state) && sample.children_cpu && before.children_cpu &&
                                used_cpu(*sample.children_cpu - *before.children_cpu, now);
    if (child_computed || did_something(known, sample, now)) {
        // Its place at the last sample, in which it was still inactive.
        if (last_sample_ && is_reportable(known, *last_sample_)) {
            known.last_rest = where_is(known, *last_sample_);
            known.rest_told_until = now + give_up_max;
            known.rest_cpu = before.cpu;
        }
        if (began || sample.step != before.step || sample.heartbeats != before.heartbeats)
            known.rest_told_until = std::min(known.rest_told_until, now + just_now);
        known.active_at = now;
        known.stacks_reported = known.place_asked = false;
        known.place.clear();
        known.waited_for_by.reset();
    }
    if (began) known.operation_since = now;
    note_section_and_heartbeats(known, sample, now);
    if (sample.operation) known.longest_gap = std::max(known.longest_gap, sample.operation->longest_gap);
    if (began && sample.operation->count >= config_.operations_min) {
        known.share_sum += sample.operation->inside_share;
        ++known.share_count;
    }
    known.last = sample;
}

void HangWatch::note_section_and_heartbeats(Known& known, const WorkerSample& sample, Instant now) const {
    const bool other_section = sample.section != known.last.section;
    if (other_section) {
        known.section_since = now;
        known.section_reported = false;
    }
    const bool beat = sample.heartbeats != known.last.heartbeats;
    // What was in no section alone is learned from, and held against the worker.
    const bool in_section = !sample.section.empty() || other_section;
    if (beat && !in_section && known.last.heartbeats > 0) {
        known.longest_heartbeat_pause = std::max(known.longest_heartbeat_pause, now - known.heartbeat_at);
        ++known.heartbeat_pauses;
    }
    if (beat || in_section) known.heartbeat_at = now;
}

void HangWatch::report_stuck(Known& known, Instant now, HangStep& step) const {
    const bool stuck = is_stuck(known.last.state) && known.active_at != now;
    if (!stuck) {
        if (std::exchange(known.stuck_reported, false)) step.notices.push_back(cat(who(known.last), " goes on"));
        known.stuck_since.reset();
        return;
    }
    if (!known.stuck_since) known.stuck_since = now;
    if (known.stuck_reported || now - *known.stuck_since < config_.stuck_after) return;
    known.stuck_reported = true;
    step.notices.push_back(
        cat(who(known.last), " has been ", place(known.last), " for ", muster::describe(now - *known.stuck_since)));
    request_stacks(known.stacks_reported, known.last.local_rank, step);
}

void HangWatch::report_section(Known& known, Instant now, HangStep& step) const {
    const auto& sample = known.last;
    const bool late = sample.section_limit > Duration::zero() && !sample.section.empty() &&
                      now - known.section_since >= sample.section_limit;
    if (!late || std::exchange(known.section_reported, true)) return;
    step.notices.push_back(cat(named(sample), " is in section ", sample.section, " longer than its limit of ",
                               muster::describe(sample.section_limit), ": ", place(sample)));
    request_stacks(known.stacks_reported, sample.local_rank, step);
}

/// Also of one that uses its CPU: whoever calls heartbeat() says that its absence means something.
void HangWatch::report_heartbeats(Known& known, Instant now, HangStep& step) {
    const auto& sample = known.last;
    if (config_.deadline_min <= Duration::zero() || known.heartbeat_pauses < config_.heartbeats_min) return;
    const auto silence = now - known.heartbeat_at;
    if (silence == Duration::zero()) {
        if (std::exchange(known.heartbeat_reported, false))
            step.notices.push_back(cat(named(sample), " sends heartbeats again"));
        return;
    }
    const auto deadline = std::max(config_.deadline_min, known.longest_heartbeat_pause * config_.gap_factor);
    if (silence < deadline || std::exchange(known.heartbeat_reported, true)) return;
    step.notices.push_back(cat(named(sample), " has sent no heartbeat for ", muster::describe(silence),
                               ", and the longest pause before was ", muster::describe(known.longest_heartbeat_pause),
                               ": ", place(sample)));
    request_stacks(known.stacks_reported, sample.local_rank, step);
}

void HangWatch::report_silent(Instant now, HangStep& step) {
    const bool silent = !workers_.empty() && std::ranges::all_of(workers_, [&](const auto& entry) {
        return now - entry.second.active_at >= config_.silent_after;
    });
    if (silent && !silence_reported_) {
        step.notices.push_back(cat("no worker of this node has used the CPU or done I/O for ",
                                   muster::describe(config_.silent_after), ":"));
        for (auto& [local_rank, known] : workers_) {
            step.notices.push_back(cat("  ", describe(known.last)));
            request_stacks(known.stacks_reported, local_rank, step);
        }
        step.notices.emplace_back(
            "  they wait for each other or for something outside the job (a file system, a network service, a lock, "
            "input); see the stacks below. Repair the cause, or stop the job with Ctrl-C or SIGTERM: muster has no "
            "timeout for this");
    } else if (!silent && silence_reported_) {
        step.notices.push_back("the workers of this node make progress again");
    }
    silence_reported_ = silent;
}

/// The last rank to arrive at each collective spends the shortest time inside.
void HangWatch::report_straggler(Instant now, HangStep& step) {
    if (!shares_since_) shares_since_ = now;
    if (now - *shares_since_ < config_.straggler_window) return;
    shares_since_ = now;
    const WorkerSample* least = nullptr;
    double least_share = 1;
    double sum = 0;
    std::size_t counted = 0;
    for (auto& [local_rank, known] : workers_) {
        if (known.share_count == 0) continue;
        const double share = known.share_sum / static_cast<double>(known.share_count);
        known.share_sum = 0;
        known.share_count = 0;
        sum += share;
        ++counted;
        if (least != nullptr && share >= least_share) continue;
        least = &known.last;
        least_share = share;
    }
    if (counted < 2) return;
    const double cost = (sum - least_share) / static_cast<double>(counted - 1) - least_share;
    const bool again = !straggler_reported_at_ || now - *straggler_reported_at_ >= config_.straggler_window * 10;
    if (cost < config_.straggler_share || !again) return;
    straggler_reported_at_ = now;
    step.notices.push_back(cat(who(*least), " is a straggler: the other ranks of this node wait for it ",
                               static_cast<int>(cost * 100), " % of their time"));
}

void HangWatch::order_ends(Instant now, HangStep& step) {
    for (auto& [local_rank, known] : workers_) {
        auto why = why_hung(known, now);
        if (!why) {
            known.missing_reported = known.end_ordered = false;
            continue;
        }
        // Told of as missing, and stopped since: that is another thing, and has its own time.
        const bool stopped = known.last.state == 'T';
        if (stopped && known.missing_reported && known.stuck_since && now - *known.stuck_since < config_.deadline_min)
            continue;
        if (std::exchange(stopped ? known.end_ordered : known.missing_reported, true)) continue;
        request_all_stacks(known, step);
        if (stopped)
            step.ends.push_back({local_rank, cat("it ", *why, "; muster killed it (--hang-timeout)")});
        else
            step.notices.push_back(cat(named(known.last), " ", *why));
    }
}

/// What the others wait in belongs to the verdict.
void HangWatch::request_all_stacks(Known& first, HangStep& step) {
    request_stacks(first.stacks_reported, first.last.local_rank, step);
    for (auto& [local_rank, known] : workers_)
        if (known.last.operation && known.last.operation->inside)
            request_stacks(known.stacks_reported, local_rank, step);
}

/// Another worker of this node that is inside an operation, and not itself stopped there.
const HangWatch::Known* HangWatch::waiting_beside(const Known& known) const {
    for (const auto& [local_rank, other] : workers_) {
        const auto& operation = other.last.operation;
        if (&other != &known && operation && operation->inside && !is_stuck(other.last.state)) return &other;
    }
    return nullptr;
}

/// Idle for longer than ever between two operations, where nothing excuses it.
bool HangWatch::is_overdue(const Known& known, Instant now) const {
    const auto& sample = known.last;
    if (config_.deadline_min <= Duration::zero() || !sample.section.empty()) return false;
    if (!sample.operation || sample.operation->count < config_.operations_min || sample.state == 't') return false;
    return now - known.active_at >= std::max(config_.deadline_min, known.longest_gap * config_.gap_factor);
}

/// Whoever is inside an operation and waits for it there; empty: nobody that is known of.
std::optional<native::WaitingWorker> HangWatch::waiting_for(const Known& known) const {
    if (known.last.operation->inside) return std::nullopt;
    const auto* beside = waiting_beside(known);
    if (beside == nullptr) return known.waited_for_by;
    const auto& sample = beside->last;
    return native::WaitingWorker{
        .host = {}, .rank = sample.rank, .pid = sample.pid, .operation = sample.operation->name};
}

std::optional<std::string> HangWatch::why_hung(const Known& known, Instant now) const {
    if (!is_overdue(known, now)) return std::nullopt;
    const auto waiting = waiting_for(known);
    const bool stopped = known.last.state == 'T';
    if (!waiting && !stopped) return std::nullopt;
    auto at = where_is(known, now);
    if (stopped) at.place.clear();  // told when it is ended
    return native::idle_sentence(at, 1, waiting);
}

}  // namespace muster::agent
