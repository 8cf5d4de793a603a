#include "launcher/commands/followed_job.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr Duration meet_interval = 2s;
/// Between two rounds: the next one may be short, and the job's last.
constexpr Duration hasty_interval = 200ms;
constexpr Duration haste_max = 10s;  ///< A job that waits for nodes may wait all night.
constexpr Duration silence_max = 15s;

}  // namespace

FollowedJob::FollowedJob(const StatusSource& source, const std::string& job, std::size_t node_count,
                         JobLogs::Trouble tell)
    : source_(source),
      tell_(std::move(tell)),
      usual_(std::max<Duration>(meet_interval, node_count * 4ms)),
      hasty_(std::max<Duration>(hasty_interval, node_count * 1ms)),
      poll_(source, usual_, agents_page(job)) {}

bool FollowedJob::goes_on(JobLogs& logs) {
    if (const auto answer = poll_.take()) hear(*answer, logs);
    const auto now = std::chrono::steady_clock::now();
    if (!logs.awaits_round()) round_seen_at_ = now;
    const bool hastens = logs.awaits_round() && !trouble_ && now - round_seen_at_ < haste_max;
    if (std::exchange(hastens_, hastens) != hastens) poll_.set_interval(hastens ? hasty_ : usual_);
    if (logs.open_count() > 0 || !trouble_) heard_at_ = now;
    if (logs.open_count() > 0) return true;
    if (!logs.may_go_on()) return false;
    if (!is_over_ && now - heard_at_ < silence_max) return true;
    const auto end = is_over_ ? std::string("the job is over")
                              : cat(source_.name(), " has not named the job's nodes for ", describe(silence_max),
                                    ", and no node is connected: the job is probably over");
    const auto cut_off = logs.cut_off_count();
    const auto missing =
        logs.has_missed_round() ? std::string("; its last round ended before it was seen")
        : cut_off > 0 ? cat("; the last lines of ", cut_off, cut_off == 1 ? " node" : " nodes", " may be missing")
                      : std::string();
    tell_(missing.empty() ? end : cat(end, missing, "; muster logs DIR shows the files"));
    return false;
}

void FollowedJob::hear(const Result<std::string>& answer, JobLogs& logs) {
    const auto agents = answer ? read_job_agents(*answer) : Result<JobAgents>(answer.error());
    is_over_ = agents && agents->is_over;
    if (agents) logs.meet(*agents);
    // A daemon that has just started, or does not lead, knows no job although it runs.
    const bool is_silent = !agents;
    if (is_silent && !trouble_)
        tell_(cat(source_.name(), ": ", agents.error().context, "; the nodes that are connected go on"));
    trouble_ = is_silent;
}

}  // namespace muster::launcher
