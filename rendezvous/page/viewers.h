// The open streams of the page: who views what, and when they get news.
//
// News goes out once a second, and at once to a new viewer, unless the looks would then take more than a twentieth of
// the loop's time: with many nodes the seconds get longer, up to 4 s, and new viewers wait as well. A viewer that has
// not read its last news gets none: it then gets the state of that time, not all that it missed. So what waits for a
// viewer is never more than the state once, and nobody waits for a viewer. Where all nodes of a large job change at
// once, that state is megabytes for each viewer: they get it one after the other, and the loop serves everybody else in
// between.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "rendezvous/dialects/http_dialect.h"
#include "rendezvous/page/news.h"

namespace muster::rendezvous {

class Viewers {
  public:
    static constexpr std::string_view path = "/api/v1/stream";
    static constexpr std::size_t viewers_max = 64;
    /// Of one source, so that none can take all places.
    static constexpr std::size_t viewers_per_source_max = 16;
    /// Of users of this host whom the kernel does not attest, as one source: tunnels end there.
    static constexpr std::size_t viewers_of_host_max = 32;

    /// False: it has not, or no longer, the right to see this.
    using MaySee = std::function<bool(const HttpRequest& request, const Connection& connection)>;

    Viewers(News::Sources sources, MaySee may_see);
    ~Viewers();

    void attach(Station& station) { station_ = &station; }
    /// Null: the target is none of the page's streams, or it is refused; then `answer` says why.
    std::unique_ptr<HttpStream> begin(const HttpRequest& request, Connection& connection);
    /// To a request for the stream that got none: a HEAD, or one that `begin` has just refused.
    [[nodiscard]] HttpPage answer(const HttpRequest& request) const;
    /// Call every turn. Returns when it is due again.
    Instant turn(Instant now);
    [[nodiscard]] std::size_t count() const { return viewers_.size(); }

  private:
    class Viewer;

    /// Why there is no stream for it. Nothing: there is.
    [[nodiscard]] std::optional<HttpPage> refusal(const HttpRequest& request, const Connection& connection) const;
    void look(Instant now);
    void send_news(Viewer& viewer, Instant now);

    News news_;
    const MaySee may_see_;
    HttpPage refused_;  ///< The last refusal.
    std::vector<Viewer*> viewers_;
    std::vector<Viewer*> due_;  ///< Those that have not got the news of the last look yet.
    Station* station_ = nullptr;
    Duration spent_{};    ///< On the last look and its news, so far.
    Instant look_at_{};   ///< The next time.
    Instant may_look_{};  ///< Not before: the last look was so dear.
};

}  // namespace muster::rendezvous
