// Viewers of the page over real connections: all get the news, none waits for another, and nobody else for them.
#include "rendezvous/page/viewers.h"

#include <set>

#include "tests/integration/net/plain_socket.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

constexpr int row_count = 200;

/// A port with the page's stream alone, of a job whose nodes all change with each look.
class Page final : EventLoop::Ticker {
  public:
    explicit Page(std::size_t row_bytes) : row_bytes_(row_bytes) {
        auto listener = Listener::open({.address = "127.0.0.1", .ports = {}});
        REQUIRE(listener.has_value());
        port_ = (*listener)->port();
        station_.emplace(loop_, *std::move(listener), Dialects{.http = &http_}, NetLimits{},
                         std::make_shared<MemoryBudget>(std::size_t{1} << 30));
        http_.attach(*station_);
        viewers_.attach(*station_);
        REQUIRE(station_->start().has_value());
        loop_.add(*this);
        REQUIRE(loop_.start_thread().has_value());
    }
    ~Page() override {
        loop_.invoke([&] {
            loop_.remove(*this);
            station_.reset();
        });
    }

    [[nodiscard]] PlainSocket view(int receive_buffer_bytes = 0) const {
        PlainSocket viewer("127.0.0.1", port_, receive_buffer_bytes);
        REQUIRE(viewer.send("GET /api/v1/stream?job=train HTTP/1.1\r\n\r\n"));
        return viewer;
    }
    /// The turns of the loop in which news was sent.
    std::set<int> turns() {
        std::set<int> turns;
        loop_.invoke([&] { turns = turns_; });
        return turns;
    }
    void refuse_new_looks() {
        loop_.invoke([&] { may_see_ = false; });
    }

  private:
    Instant turn(Instant now) override {
        ++turn_;
        return viewers_.turn(now);
    }
    JobPieces pieces() {
        ++look_;
        JobPieces pieces{.job = "{}", .nodes = {}};
        for (int i = 0; i < row_count; ++i)
            pieces.nodes.emplace_back(std::to_string(i),
                                      "\"" + std::to_string(look_) + std::string(row_bytes_, 'x') + "\"");
        return pieces;
    }

    const std::size_t row_bytes_;
    int turn_ = 0;
    int look_ = 0;
    bool may_see_ = true;
    std::set<int> turns_;
    std::uint16_t port_ = 0;
    EventLoop loop_;
    Viewers viewers_{{.daemon = [](Instant) { return std::string("{}"); },
                      .jobs = [](Instant) { return std::vector<JobSummary>(); },
                      .job = [this](const std::string&, Instant, SeenNodes&) { return pieces(); },
                      .events = [](const std::string&, const EventPosition&,
                                   std::size_t) { return std::optional<EventStream::Page>(); },
                      .wall_clock_ms = [] { return std::int64_t{0}; }},
                     [this](const HttpRequest&, const Connection&) {
                         turns_.insert(turn_);
                         return may_see_;
                     }};
    HttpDialect http_{
        [](const HttpRequest&, Instant) { return std::optional<HttpPage>(); },
        {},
        {},
        [this](const HttpRequest& request, Connection& connection) { return viewers_.begin(request, connection); }};
    std::optional<Station> station_;
};

/// Reads until so many messages of the nodes have come whole. False: the stream ended before.
bool read_news(const PlainSocket& viewer, std::string& text, std::size_t count) {
    const auto whole_count = [&] {
        std::size_t found = 0;
        for (auto at = text.find("event: nodes\n"); at != std::string::npos; at = text.find("event: nodes\n", at + 1))
            if (text.find("\n\n", at) != std::string::npos) ++found;
        return found;
    };
    if (whole_count() >= count) return true;
    std::array<char, 1 << 16> piece;
    for (;;) {
        const auto got = ::recv(viewer.fd(), piece.data(), piece.size(), 0);
        if (got <= 0) return false;
        const std::string_view more(piece.data(), static_cast<std::size_t>(got));
        text += more;
        // The rows are long and have no newline: it is rarely worth to look.
        if (more.find('\n') != std::string_view::npos && whole_count() >= count) return true;
    }
}

}  // namespace

TEST_CASE("all viewers get news of megabytes whole, in many turns of the loop") {
    Page page(10'000);
    std::vector<PlainSocket> viewers;
    for (int i = 0; i < 48; ++i) viewers.push_back(page.view());
    for (const auto& viewer : viewers) {
        std::string text;
        CHECK(read_news(viewer, text, 1));
        CHECK(text.size() > row_count * 10'000);
    }
    // 96 MB do not go out within the time that the loop gives them in one turn.
    CHECK(page.turns().size() > 4);
}

TEST_CASE("a viewer that does not read keeps none from the news, and then gets the last state and not all of them") {
    Page page(40'000);
    const auto stuck = page.view(4'096), reading = page.view();
    std::string text;
    REQUIRE(read_news(reading, text, 4));
    std::string late;
    REQUIRE(read_news(stuck, late, 2));
    const auto second = late.rfind("event: nodes\n");
    const auto row = late.find("\"0\":\"", second);
    REQUIRE(row != std::string::npos);
    CHECK(std::stoi(late.substr(row + 5, 8)) >= 4);  // up to the 'x's.
}

TEST_CASE("a viewer that may not see it any more is closed with the next news") {
    Page page(10);
    const auto viewer = page.view();
    std::string text;
    REQUIRE(read_news(viewer, text, 1));
    page.refuse_new_looks();
    CHECK_FALSE(read_news(viewer, text, 1'000'000));
}
