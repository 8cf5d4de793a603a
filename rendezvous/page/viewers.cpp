#include "rendezvous/page/viewers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr Duration pace = 1s;
constexpr Duration pace_max = 4s;
/// One part in so many of the loop's time.
constexpr int share = 20;
/// News is sent for so long in one turn of the loop, and to one viewer at least.
constexpr Duration slice = 2ms;
/// A viewer whose connection takes nothing for so long is closed.
constexpr Duration unread_max = 30s;
/// A backstop far above what is ever sent at once: the state of 20,000 nodes, and events.
constexpr std::size_t unsent_bytes_max = std::size_t{16} << 20;

/// A page of another site cannot read a stream, but it could take places of viewers. Another port of localhost is
/// "same-site". Browsers send the header to localhost and over TLS only; elsewhere the limit of a source has to do.
bool is_foreign(const HttpRequest& request) {
    return !request.fetch_site.empty() && request.fetch_site != "none" && request.fetch_site != "same-origin";
}

/// All of 127.0.0.0/8 is one host.
std::string source_of_viewer(const Connection& connection) {
    return is_loopback(connection.peer()) ? "this host" : source_of(connection.peer());
}

}  // namespace

class Viewers::Viewer final : public HttpStream {
  public:
    Viewer(Viewers& all, HttpRequest asked, Connection& its_connection, News::Seen has_seen)
        : request(std::move(asked)),
          connection(its_connection),
          source(source_of_viewer(its_connection)),
          seen(std::move(has_seen)),
          all_(all) {
        all_.viewers_.push_back(this);
    }
    ~Viewer() override {
        std::erase(all_.viewers_, this);
        std::erase(all_.due_, this);
        const auto views_it = [this](const Viewer* other) { return other->seen.job == seen.job; };
        if (std::ranges::none_of(all_.viewers_, views_it)) all_.news_.forget(seen.job);
    }

    const HttpRequest request;
    Connection& connection;
    const std::string source;
    News::Seen seen;
    std::size_t unread_bytes = 0;
    Instant unread_since{};

  private:
    Viewers& all_;
};

Viewers::Viewers(News::Sources sources, MaySee may_see) : news_(std::move(sources)), may_see_(std::move(may_see)) {}
Viewers::~Viewers() = default;

HttpPage Viewers::answer(const HttpRequest& request) const {
    if (request.method == "HEAD") return {.type = "text/event-stream", .body = {}};
    return refused_;
}

std::optional<HttpPage> Viewers::refusal(const HttpRequest& request, const Connection& connection) const {
    const auto too_many = [](const auto&... why) {
        return HttpPage{.status = 503, .body = cat(why..., " Close one of them, or use muster status.\n")};
    };
    if (is_foreign(request))
        return HttpPage{.status = 403,
                        .body = "A page of another site asked for this. Open the daemon's page instead.\n"};
    if (station_->memory()->is_short())
        return HttpPage{.status = 503,
                        .body = "The daemon's memory for its peers is short. The page goes on when it is not.\n"};
    if (viewers_.size() >= viewers_max) return too_many("The page has ", viewers_max, " viewers, which is the limit.");
    if (connection.is_own()) return std::nullopt;
    const auto source = source_of_viewer(connection);
    const auto most = is_loopback(connection.peer()) ? viewers_of_host_max : viewers_per_source_max;
    const auto count = std::ranges::count_if(viewers_, [&](const Viewer* one) { return one->source == source; });
    if (static_cast<std::size_t>(count) < most) return std::nullopt;
    return too_many("The page has ", most, " viewers from ", source, ", which is the limit.");
}

std::unique_ptr<HttpStream> Viewers::begin(const HttpRequest& request, Connection& connection) {
    const std::string_view target = request.target;
    if (target.substr(0, target.find('?')) != path) return nullptr;
    if (auto refused = refusal(request, connection)) {
        refused_ = *std::move(refused);
        return nullptr;
    }
    News::Seen seen{.job = percent_decoded(query_value(target, "job").value_or("")).value_or("")};
    if (const auto after = query_value(target, "after")) seen.event = event_position(*after);
    connection.limit_unsent(unsent_bytes_max);
    auto viewer = std::make_unique<Viewer>(*this, request, connection, std::move(seen));
    connection.send(http_stream_head("text/event-stream"));
    // The news follows in this turn, or as soon as a look may be.
    look_at_ = std::min(look_at_, may_look_);
    return viewer;
}

Instant Viewers::turn(Instant now) {
    if (viewers_.empty()) return no_deadline;
    if (due_.empty() && now < look_at_) return look_at_;
    const auto began = std::chrono::steady_clock::now();
    const auto passed = [&] { return std::chrono::steady_clock::now() - began; };
    if (due_.empty()) {
        spent_ = {};
        look(now);
        due_ = viewers_;
    }
    // A viewer that is closed leaves the lists at once.
    do {
        auto* const viewer = due_.back();
        due_.pop_back();
        send_news(*viewer, now);
        station_->flush_dirty(now);  // That is where most of the time goes.
    } while (!due_.empty() && passed() < slice);
    spent_ += passed();
    if (!due_.empty()) return now;
    const auto cost = std::min<Duration>(spent_ * share, pace_max);
    may_look_ = now + cost;
    // One that came while the others got their news has none yet.
    const bool is_new =
        std::ranges::any_of(viewers_, [](const Viewer* one) { return !one->seen.clock && !one->connection.closing(); });
    return look_at_ = is_new ? may_look_ : now + std::max<Duration>(cost, pace);
}

void Viewers::look(Instant now) {
    news_.look_at_jobs(now);
    std::set<std::string> jobs;
    for (const auto* viewer : viewers_)
        if (!viewer->seen.job.empty()) jobs.insert(viewer->seen.job);
    for (const auto& job : jobs) news_.look_at(job, now);
}

void Viewers::send_news(Viewer& viewer, Instant now) {
    if (viewer.connection.closing()) return;
    if (!may_see_(viewer.request, viewer.connection))
        return station_->refuse(viewer.connection, "it viewed the page with a secret that is no longer the daemon's",
                                now);
    const auto unread = viewer.connection.unsent_bytes();
    if (unread == 0 || viewer.unread_bytes == 0 || unread < viewer.unread_bytes) viewer.unread_since = now;
    viewer.unread_bytes = unread;
    if (now - viewer.unread_since >= unread_max)
        return station_->refuse(viewer.connection, "it has read nothing of the page's stream for 30 s", now);
    // Of a new viewer the head may still wait for the end of this turn.
    if (unread == 0 || !viewer.seen.clock) viewer.connection.send(news_.next(viewer.seen));
}

}  // namespace muster::rendezvous
