// Status pages over HTTP on the daemon's port.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/dialects/http_message.h"
#include "rendezvous/net/session.h"
#include "rendezvous/net/station.h"
#include "rendezvous/secret/job_key.h"

namespace muster::rendezvous {

/// True once the asker's connection has ended. For any thread.
using AskerGone = std::shared_ptr<const std::atomic<bool>>;

/// An answer that goes on until its connection ends, which destroys it.
class HttpStream {
  public:
    virtual ~HttpStream() = default;
};

class HttpDialect final : public Dialect {
  public:
    /// The page at the request's target (a path with its query), or nothing: 404. `now` is that of the loop's turn, as
    /// for the events of the same turn: counters would decrease otherwise.
    using Pages = std::function<std::optional<HttpPage>(const HttpRequest& request, Instant now)>;

    /// False: it has no such page. Else `answer` is called once, on the loop's thread, at any time.
    using LatePages = std::function<bool(const HttpRequest& request, const Connection& asker, AskerGone gone,
                                         std::function<void(HttpPage)> answer)>;

    struct Access {
        std::vector<std::string> names;  ///< of this server, beside its host's name and addresses, and localhost
        std::string_view name_option = "musterd --status-host NAME";  ///< which adds one
        /// The token of one is asked of requests from other hosts for what is not public; empty: none is asked.
        JobKeys keys;
        /// The token of the status pages opens nothing here. That of the metrics opens /metrics of any server.
        bool metrics_alone = false;
        /// Who has proved the key of this identity needs no token, as long as the daemon accepts the key. Without
        /// `keys` it is not called.
        std::function<bool(std::string_view identity)> has_key;
        /// True for paths that have nothing of a job.
        std::function<bool(std::string_view path)> is_public;
    };

    /// Null: the target is no stream, or there are too many. Then Pages is asked.
    using Streams = std::function<std::unique_ptr<HttpStream>(const HttpRequest& request, Connection& connection)>;

    HttpDialect(Pages pages, Access access, LatePages late = {}, Streams streams = {});

    void attach(Station& station) { station_ = &station; }
    /// It needs no token for that target, or has one of the present, or has proved such a key.
    [[nodiscard]] bool may_see(const HttpRequest& request, const Connection& connection) const;
    [[nodiscard]] std::string_view name() const override { return "http"; }
    [[nodiscard]] std::string refusal(std::string_view why) const override;
    std::unique_ptr<Session> begin(Connection& connection, Instant now) override;

  private:
    class HttpSession;

    /// Why the request is not served; nothing: it is.
    [[nodiscard]] std::optional<HttpPage> objection_to(const HttpRequest& request, const Connection& connection) const;
    /// Of this host, and not served without a token.
    [[nodiscard]] static bool is_other_user(const Connection& connection);
    /// The token for metrics opens this page.
    [[nodiscard]] bool is_for_scrapers(const HttpRequest& request) const;
    [[nodiscard]] HttpPage page_for(const HttpRequest& request, Instant now) const;

    [[nodiscard]] bool answers_late(const HttpRequest& request, const Connection& connection, AskerGone gone) const;

    Pages pages_;
    Access access_;
    LatePages late_;
    const Streams streams_;
    Station* station_ = nullptr;
    /// Held weakly by answers that are still to come.
    const std::shared_ptr<const HttpDialect*> self_ = std::make_shared<const HttpDialect*>(this);
};

}  // namespace muster::rendezvous
