// The open streams of the page: who views what, and when they get news.
//
// News goes out once a second. A look at the jobs may take at most a twentieth of the loop's time, so with many nodes
// the seconds get longer. A viewer that has not read its last news gets none: it then gets the state of that time, not
// all that it missed. So what waits for a viewer is never more than the state once, and nobody waits for a viewer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/dialects/http_dialect.h"
#include "rendezvous/page/news.h"

namespace muster::rendezvous {

class Viewers {
  public:
    static constexpr std::string_view path = "/api/v1/stream";
    static constexpr std::size_t viewers_max = 64;

    explicit Viewers(News::Sources sources);
    ~Viewers();

    void attach(Station& station) { station_ = &station; }
    /// Null: the target is none of the page's streams, a page of another site asks, or there are too many viewers;
    /// `refusal` has the answer.
    std::unique_ptr<HttpStream> begin(const HttpRequest& request, Connection& connection);
    [[nodiscard]] static HttpPage refusal(const HttpRequest& request);
    /// Call every turn. Returns when it is due again.
    Instant turn(Instant now);
    [[nodiscard]] std::size_t count() const { return viewers_.size(); }

  private:
    class Viewer;

    void look(Instant now);
    void send_news(Viewer& viewer, Instant now);

    News news_;
    std::vector<Viewer*> viewers_;
    Station* station_ = nullptr;
    Instant look_at_ = no_deadline;  ///< The next time.
};

}  // namespace muster::rendezvous
