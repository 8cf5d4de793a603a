#include "agent/evidence/hang_watcher.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/process/process_tree.h"
#include "agent/process/side_process.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr Duration sample_interval = 1s;
/// Of a worker that is to be ended.
constexpr Duration stacks_limit = 1500ms;
/// `muster logs --stacks` waits for 5 s.
constexpr Duration asked_stacks_limit = 4s;
/// A thousand nodes then tell a daemon 100 times a second, some KiB each time. When all of them hang they tell it once
/// more each, and never more often than they look.
constexpr Duration seen_pause = 10s;

Duration cpu_of(const ProcessFacts& process) {
    static const std::int64_t ticks_per_second = ::sysconf(_SC_CLK_TCK);
    return Duration(1s) * static_cast<std::int64_t>(process.cpu_ticks + process.ended_children_ticks) /
           ticks_per_second;
}

void read_stat(std::int32_t pid, WorkerSample& sample) {
    const auto process = parse_stat(read_file(cat("/proc/", pid, "/stat")));
    if (!process) return;
    sample.state = process->state;
    sample.cpu = cpu_of(*process);
}

/// A script that waits for its one program is no more than that program. Nobody is asked for deeper chains than are
/// written by hand.
std::int32_t program_of(std::int32_t pid) {
    constexpr int deep_max = 4;
    for (int i = 0; i < deep_max && read_file(cat("/proc/", pid, "/wchan")) == "do_wait"; ++i) {
        const auto children = listed_children(pid);
        if (!children || children->size() != 1) break;
        pid = children->front();
    }
    return pid;
}

/// What all processes below this one have used. Where the kernel does not list children: nothing. To read all of /proc
/// each second would hold up the agent on a large host.
Duration cpu_below(std::int32_t pid) {
    constexpr std::size_t processes_max = 256;
    std::vector<pid_t> family{pid};
    Duration sum{};
    for (std::size_t i = 0; i < family.size(); ++i) {
        const auto process = i > 0 ? parse_stat(read_file(cat("/proc/", family[i], "/stat"))) : std::nullopt;
        if (process) sum += cpu_of(*process);
        for (const auto child : listed_children(family[i]).value_or(std::vector<pid_t>()))
            if (family.size() < processes_max) family.push_back(child);
    }
    return sum;
}

void read_io(std::int32_t pid, WorkerSample& sample) {
    const auto io = read_file(cat("/proc/", pid, "/io"));
    for (const auto line : split(io, '\n')) {
        std::uint64_t bytes = 0;
        const bool counts = line.starts_with("rchar: ") || line.starts_with("wchar: ");
        if (counts && parse_number(line.substr(7), bytes)) sample.io_bytes += bytes;
    }
}

Duration unix_minus_steady() {
    return std::chrono::system_clock::now().time_since_epoch() - std::chrono::steady_clock::now().time_since_epoch();
}

}  // namespace

HangWatcher::HangWatcher(boost::asio::io_context& loop, HangConfig config,
                         const std::map<std::string, std::string>& environment)
    : timer_(loop), watch_(config), stacks_(loop), torch_(environment), torch_server_(loop) {}

void HangWatcher::begin_round(std::uint32_t rank_base) {
    rank_base_ = rank_base;
    began_at_ = std::chrono::steady_clock::now();
    workers_.clear();
    watch_.begin_round();
    torch_.forget();
    activities_.reset();
    seen_sent_at_.reset();
    paces_sent_.clear();
    stepped_sent_ = 0;
    sections_.clear();
    torch_operations_.clear();
    resting_ = false;
    arm();
}

void HangWatcher::worker_started(std::uint32_t local_rank, std::int32_t pid) {
    Worker worker;
    worker.pid = worker.program = pid;
    worker.pidfd = open_pidfd(pid);
    workers_[local_rank] = std::move(worker);
    // What is known of one that ran in its place in this round is past.
    watch_.worker_started(rank_base_ + local_rank);
    torch_operations_.erase(static_cast<std::int32_t>(rank_base_ + local_rank));
}

FailureCause HangWatcher::worker_ended(std::uint32_t local_rank) {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) return {};
    const auto why = std::move(found->second.ended_why);
    // One that is being stopped tells nothing by its end.
    if (!resting_) watch_.worker_ended(local_rank, std::chrono::steady_clock::now());
    workers_.erase(found);
    return why.empty() ? FailureCause{} : FailureCause{CauseKind::hung, why, {}};
}

void HangWatcher::round_failed() {
    if (resting_) return;
    const auto now = std::chrono::steady_clock::now();
    activities_ = with_torch(watch_.activities(now));
    for (const auto& line : watch_.round_failed(now))
        if (on_notice) on_notice(line);
}

std::vector<WorkerActivity> HangWatcher::activities() const {
    return activities_ ? *activities_ : with_torch(watch_.activities(std::chrono::steady_clock::now()));
}

void HangWatcher::rest() {
    // Without samples from here on, all workers would seem inactive.
    if (!resting_ && !activities_) activities_ = activities();
    resting_ = true;
    timer_.cancel();
    stacks_.drop_all();
    torch_server_.drop_all();
    for (auto& [local_rank, worker] : workers_) worker.want.clear();
}

void HangWatcher::arm() {
    call_after(timer_, sample_interval, life_.guard([this] {
        if (resting_) return;
        sample_workers();
        arm();
    }));
}

void HangWatcher::tell_section(std::uint32_t local_rank, Worker& worker, const std::string& section) {
    const auto tell = [&](EventKind kind, std::string_view what) {
        const auto rank = static_cast<std::int32_t>(rank_base_ + local_rank);
        if (on_event)
            on_event({.kind = kind,
                      .text = cat("rank ", rank, what, worker.section),
                      .facts = {.pid = worker.pid,
                                .rank = rank,
                                .local_rank = static_cast<std::int32_t>(local_rank),
                                .section = worker.section},
                      .place = EventPlace::stream_only});
    };
    if (!worker.section.empty() && worker.section != section) {
        tell(EventKind::section_left, " left section ");
        worker.section.clear();
    }
    const auto now = std::chrono::steady_clock::now();
    if (section.empty() || section == worker.section || now < worker.section_due) return;
    worker.section = section;
    worker.section_due = now + std::clamp<Duration>((now - began_at_) / 100, 10s, 5min);
    tell(EventKind::section_entered, " is in section ");
}

WorkerSample HangWatcher::sample_of(std::uint32_t local_rank, Worker& worker) {
    WorkerSample sample;
    sample.local_rank = local_rank;
    sample.rank = static_cast<std::int32_t>(rank_base_ + local_rank);
    sample.pid = worker.pid;
    worker.program = program_of(worker.pid);
    read_stat(worker.program, sample);
    // muster-stacks stops the worker while it reads. That is not a debugger.
    if (!worker.want.empty()) sample.state = worker.state;
    worker.state = sample.state;
    read_io(worker.program, sample);
    auto told = ask(local_rank);
    raise_to(sections_, told.sections);
    tell_section(local_rank, worker, told.section);
    sample.section = std::move(told.section);
    sample.section_limit = told.section_limit;
    sample.heartbeats = told.heartbeats;
    sample.step = told.steps.last_step;
    sample.operation = std::move(told.operation);
    sample.where = read_file(cat("/proc/", worker.program, "/wchan"));
    if (sample.where == "0") sample.where.clear();  // it runs, or we may not know
    return sample;
}

void HangWatcher::sample_workers() {
    std::vector<WorkerSample> samples;
    for (auto& [local_rank, worker] : workers_) samples.push_back(sample_of(local_rank, worker));
    const auto now = std::chrono::steady_clock::now();
    for (auto& sample : samples) {
        if (watch_.seems_idle(sample, now)) sample.children_cpu = cpu_below(sample.pid);
    }
    carry_out(watch_.judge(samples, now), now);
    send_seen(now);
}

void HangWatcher::job_seen(const native::JobSeen& seen) {
    const auto now = std::chrono::steady_clock::now();
    if (!resting_) carry_out(watch_.job_seen(seen, now), now);
}

void HangWatcher::carry_out(HangStep step, Instant now) {
    for (const auto local_rank : step.stacks) {
        report_stacks(local_rank);
        torch_.ask(static_cast<std::int32_t>(rank_base_ + local_rank), now);
        ask_torch(local_rank, true);
    }
    for (const auto local_rank : step.places) {
        // Another idle time: what torch told of an earlier one says nothing about it.
        torch_operations_.erase(static_cast<std::int32_t>(rank_base_ + local_rank));
        ask_place(local_rank);
        ask_torch(local_rank, false);
    }
    for (auto& line : torch_.poll(now)) step.notices.push_back(std::move(line));
    for (const auto& line : step.notices)
        if (on_notice) on_notice(line);
    for (const auto& order : step.ends)
        take_stacks(order.local_rank, stacks_limit, [this, order](const StackText& stacks) { end(order, stacks); });
}

void HangWatcher::ask_torch(std::uint32_t local_rank, bool as_notice) {
    const auto rank = static_cast<std::int32_t>(rank_base_ + local_rank);
    auto told = ask(local_rank);
    if (told.torch_socket.empty()) return;
    auto answered = life_.guard([this, local_rank, rank, as_notice](const TorchServer::Answer& answer) {
        if (answer.operation) {
            torch_operations_.erase(rank);
            if (tells_place(*answer.operation, ask(local_rank).operation, unix_minus_steady()))
                torch_operations_[rank] = *answer.operation;
        }
        if (as_notice && on_notice) on_notice(answer.line);
    });
    torch_server_.ask(rank, told.torch_socket, std::move(told.torch_file), std::move(answered));
}

std::vector<WorkerActivity> HangWatcher::with_torch(std::vector<WorkerActivity> all) const {
    for (auto& worker : all) {
        const auto found = torch_operations_.find(worker.rank);
        if (found == torch_operations_.end() || worker.inside) continue;
        worker.inside = found->second.inside;
        worker.operation = found->second.name;
    }
    return all;
}

void HangWatcher::send_seen(Instant now) {
    if (!on_seen || workers_.empty()) return;
    native::WorkersSeen seen{.workers = watch_.seen(now), .counts = watch_.counts(now), .sections = sections_};
    std::map<std::int32_t, native::WorkerPace> paces;
    for (const auto& worker : seen.workers)
        if (worker.pace != native::WorkerPace::usual) paces[worker.at.rank] = worker.pace;
    std::size_t stepped = 0;
    auto last_at = Instant::min();
    for (auto& worker : seen.workers) {
        auto steps = ask(static_cast<std::uint32_t>(worker.at.rank) - rank_base_).steps;
        worker.tally = steps.tally;
        if (worker.at.rank == 0) seen.step_times = std::move(steps.times);
        if (steps.last_step < 0) continue;
        worker.step = steps.last_step;
        last_at = std::max(last_at, steps.last_at);
        worker.at.state += cat(", step ", steps.last_step, " done");
        ++stepped;
    }
    if (stepped > 0) seen.since_step_ns = std::max(now - last_at, Duration::zero()).count();
    const bool is_news = paces != paces_sent_ || stepped > stepped_sent_;
    if (seen_sent_at_ && now - *seen_sent_at_ < seen_pause && !is_news) return;
    seen_sent_at_ = now;
    paces_sent_ = std::move(paces);
    stepped_sent_ = stepped;
    on_seen(std::move(seen));
}

void HangWatcher::take_stacks(std::uint32_t local_rank, Duration limit, std::function<void(const StackText&)> use) {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) return;
    auto& worker = found->second;
    worker.want.push_back(std::move(use));
    if (worker.want.size() > 1) return;
    auto taken = life_.guard(
        [this, local_rank, pid = worker.pid](const std::string& output) { stacks_taken(local_rank, pid, output); });
    stacks_.start({side_program("muster-stacks"), cat(worker.program)}, limit, std::move(taken));
}

void HangWatcher::stacks_taken(std::uint32_t local_rank, std::int32_t pid, const std::string& output) {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end() || found->second.pid != pid) return;
    const auto stacks = read_stacks(output);
    for (const auto& use : std::exchange(found->second.want, {})) use(stacks);
}

void HangWatcher::tell_stacks(const std::optional<std::set<std::uint32_t>>& ranks,
                              std::function<void(std::string)> use) {
    // The last callback that goes, called or not, brings the text.
    struct Gathered {
        explicit Gathered(std::function<void(std::string)> wish) : use(std::move(wish)) {}
        Gathered& operator=(Gathered&&) = delete;
        ~Gathered() {
            std::string text;
            for (const auto& [rank, lines] : of_rank)
                text += cat("rank ", rank, ":\n", lines.empty() ? "    not known" : join(lines, "\n"), "\n");
            use(std::move(text));
        }
        const std::function<void(std::string)> use;
        std::map<std::uint32_t, std::vector<std::string>> of_rank;
    };
    const auto gathered = std::make_shared<Gathered>(std::move(use));
    for (const auto& [local_rank, worker] : workers_) {
        const auto rank = rank_base_ + local_rank;
        if (ranks && !ranks->contains(rank)) continue;
        auto& lines = gathered->of_rank[rank];
        take_stacks(local_rank, asked_stacks_limit,
                    [gathered, &lines](const StackText& stacks) { lines = stacks.lines; });
    }
}

void HangWatcher::report_stacks(std::uint32_t local_rank) {
    take_stacks(local_rank, stacks_limit, [this, local_rank](const StackText& stacks) {
        if (stacks.lines.empty() || !on_notice) return;
        on_notice(cat("where rank ", rank_base_ + local_rank, " is:"));
        for (const auto& line : stacks.lines) on_notice(line);
    });
}

void HangWatcher::ask_place(std::uint32_t local_rank) {
    take_stacks(local_rank, stacks_limit,
                [this, local_rank](const StackText& stacks) { watch_.stands_at(local_rank, stacks.place); });
}

void HangWatcher::end(const EndOrder& order, const StackText& stacks) {
    const auto found = workers_.find(order.local_rank);
    if (found == workers_.end()) return;
    auto& worker = found->second;
    const bool sent =
        worker.pidfd.valid() && ::syscall(SYS_pidfd_send_signal, worker.pidfd.get(), SIGKILL, nullptr, 0) == 0;
    if (sent)
        worker.ended_why = stacks.top.empty() ? order.why : cat(order.why, "; it was at ", stacks.top);
    else
        log(LogLevel::warning, "rank ", rank_base_ + order.local_rank, " hangs and cannot be killed: ", order.why);
}

}  // namespace muster::agent
