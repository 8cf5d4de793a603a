#include "rendezvous/page/news.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr std::uint64_t first_events_max = 1'000;
/// Of events in one turn. A viewer that is further behind gets more with the next one.
constexpr std::size_t event_bytes_max = std::size_t{512} << 10;

std::string text_of(const nlohmann::json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void add(std::string& out, std::string_view type, std::string_view data) {
    out += cat("event: ", type, "\ndata: ", data, "\n\n");
}

/// What the list of jobs shows. Of what changes with time alone there is but the goodput, in tenths of a percent, and
/// now and then the restarts that are left, so that idle jobs cost few bytes.
std::string row_of(const JobSummary& job) {
    const auto sum = [](const auto& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0},
                               [](std::uint64_t before, const auto& one) { return before + one.second; });
    };
    nlohmann::json row{{"phase", job.phase},
                       {"nodes", nlohmann::json::object()},
                       {"ranks", nlohmann::json::object()},
                       {"nodes_min", job.nodes_min},
                       {"nodes_max", job.nodes_max},
                       {"restarts_used", job.restarts_used},
                       {"restarts_max", job.restarts_max},
                       {"restarts_left", job.restarts_left},
                       {"rounds", sum(job.counters.rounds)},
                       {"failures", sum(job.counters.failures)},
                       {"goodput", std::round(job.time.goodput() * 1000) / 1000}};
    for (const auto& [place, count] : job.nodes) row["nodes"][std::string(place)] = count;
    for (const auto& [pace, count] : job.ranks) row["ranks"][std::string(pace)] = count;
    if (job.step >= 0) row["step"] = job.step;
    if (job.checkpoint_step >= 0) row["checkpoint_step"] = job.checkpoint_step;
    return text_of(row);
}

}  // namespace

void News::look_at_jobs(Instant now) {
    daemon_ = sources_.daemon(now);
    std::vector<std::pair<std::string, std::string>> rows;
    for (const auto& job : sources_.jobs(now)) rows.emplace_back(job.id, row_of(job));
    jobs_.set(std::move(rows));
}

void News::look_at(const std::string& job, Instant now) {
    auto& viewed = viewed_[job];
    auto pieces = sources_.job(job, now, viewed.seen);
    viewed.detail = std::move(pieces.job);
    viewed.nodes.change(std::move(pieces.nodes), pieces.gone);
}

std::string News::next(Seen& seen) {
    std::string out;
    if (!std::exchange(seen.clock, true)) add(out, "clock", cat("{\"now_ms\":", sources_.wall_clock_ms(), "}"));
    if (seen.daemon != daemon_) add(out, "daemon", seen.daemon = daemon_);
    if (seen.jobs != jobs_.version()) add(out, "jobs", jobs_.since(std::exchange(seen.jobs, jobs_.version())));
    if (!seen.job.empty()) add_job(out, seen);
    if (out.empty()) out = ":\n\n";
    return out;
}

void News::add_job(std::string& out, Seen& seen) {
    const auto found = viewed_.find(seen.job);
    if (found == viewed_.end()) return;
    auto& [detail, looks, nodes] = found->second;
    if (seen.detail != detail) add(out, "job", seen.detail = detail);
    if (seen.nodes != nodes.version()) add(out, "nodes", nodes.since(std::exchange(seen.nodes, nodes.version())));
    add_events(out, seen);
}

void News::add_events(std::string& out, Seen& seen) {
    if (!seen.event) {
        const auto newest = sources_.events(seen.job, {}, 1);
        if (!newest) return;
        seen.event = EventPosition{.sequence = newest->newest - std::min(newest->newest, first_events_max)};
    }
    const auto page = sources_.events(seen.job, *seen.event, event_bytes_max);
    if (!page) return;
    for (const auto line : split(page->lines, '\n'))
        if (!line.empty()) add(out, "happened", line);
    // From here on it is in this daemon's stream.
    seen.event = EventPosition{.sequence = page->last};
}

}  // namespace muster::rendezvous
