#include "rendezvous/page/viewers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr Duration pace = 1s;
constexpr Duration pace_max = 4s;
/// One part in so many of the loop's time.
constexpr int share = 20;
/// A viewer whose connection takes nothing for so long is closed.
constexpr Duration unread_max = 30s;
/// A backstop far above what is ever sent at once: the state of 20,000 nodes, and events.
constexpr std::size_t unsent_bytes_max = std::size_t{16} << 20;

/// A page of another site cannot read a stream, but it could take all places of viewers.
bool is_foreign(const HttpRequest& request) {
    return request.fetch_site == "cross-site";
}

}  // namespace

class Viewers::Viewer final : public HttpStream {
  public:
    Viewer(Viewers& all, Connection& its_connection, News::Seen has_seen)
        : connection(its_connection), seen(std::move(has_seen)), all_(all) {
        all_.viewers_.push_back(this);
    }
    ~Viewer() override {
        std::erase(all_.viewers_, this);
        const auto views_it = [this](const Viewer* other) { return other->seen.job == seen.job; };
        if (std::ranges::none_of(all_.viewers_, views_it)) all_.news_.forget(seen.job);
    }

    Connection& connection;
    News::Seen seen;
    std::size_t unread_bytes = 0;
    Instant unread_since{};

  private:
    Viewers& all_;
};

Viewers::Viewers(News::Sources sources) : news_(std::move(sources)) {}
Viewers::~Viewers() = default;

HttpPage Viewers::refusal(const HttpRequest& request) {
    if (is_foreign(request))
        return {.status = 403, .body = "A page of another site asked for this. Open the daemon's page instead.\n"};
    return {.status = 503,
            .body = cat("The page has ", viewers_max,
                        " viewers, which is the limit. Close one of them, or use muster status.\n")};
}

std::unique_ptr<HttpStream> Viewers::begin(const HttpRequest& request, Connection& connection) {
    const std::string_view target = request.target;
    if (target.substr(0, target.find('?')) != path || is_foreign(request) || viewers_.size() >= viewers_max)
        return nullptr;
    News::Seen seen{.job = percent_decoded(query_value(target, "job").value_or("")).value_or("")};
    if (const auto after = query_value(target, "after")) seen.event = event_position(*after);
    connection.limit_unsent(unsent_bytes_max);
    const Instant now = std::chrono::steady_clock::now();
    auto viewer = std::make_unique<Viewer>(*this, connection, std::move(seen));
    // The first one has to look; the others get what is known.
    if (viewers_.size() == 1) look(now);
    if (const auto& job = viewer->seen.job; !job.empty() && !news_.looks_at(job)) news_.look_at(job, now);
    connection.send(http_stream_head("text/event-stream"));
    connection.send(news_.next(viewer->seen));
    return viewer;
}

Instant Viewers::turn(Instant now) {
    if (viewers_.empty()) return no_deadline;
    if (now < look_at_) return look_at_;
    look(now);
    // A viewer that is closed leaves the list at once.
    for (auto* viewer : std::vector(viewers_)) send_news(*viewer, now);
    const auto cost = std::chrono::steady_clock::now() - now;
    return look_at_ = now + std::clamp(cost * share, pace, pace_max);
}

void Viewers::look(Instant now) {
    news_.look_at_jobs(now);
    std::set<std::string> jobs;
    for (const auto* viewer : viewers_)
        if (!viewer->seen.job.empty()) jobs.insert(viewer->seen.job);
    for (const auto& job : jobs) news_.look_at(job, now);
    look_at_ = now + pace;
}

void Viewers::send_news(Viewer& viewer, Instant now) {
    const auto unread = viewer.connection.unsent_bytes();
    if (unread == 0 || viewer.unread_bytes == 0 || unread < viewer.unread_bytes) viewer.unread_since = now;
    viewer.unread_bytes = unread;
    if (now - viewer.unread_since >= unread_max)
        return station_->refuse(viewer.connection, "it has read nothing of the page's stream for 30 s", now);
    if (unread == 0) viewer.connection.send(news_.next(viewer.seen));
}

}  // namespace muster::rendezvous
