#include "worker_runtime/transport/meeting_place.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/transport/sealed_text.h"

using namespace muster;
using namespace muster::runtime;

namespace {

Instant in(Duration duration) {
    return std::chrono::steady_clock::now() + duration;
}

/// A place that has lost its connection.
class GonePlace final : public MeetingPlace {
  public:
    Result<void> publish(std::string_view, std::string_view, Instant) override { return {}; }
    Result<std::vector<std::string>> collect(const std::vector<std::string>&, const MeetingWait&) override {
        return Error{Errc::peer_closed, "the store has gone"};
    }
};

}  // namespace

TEST_CASE("an exchange gives every rank all values, in rank order") {
    std::vector<std::string> seen(5);
    test::run_as_threads(5, [&](const GroupTerms& terms) {
        const auto values = exchange(terms, "greeting", cat("from ", terms.rank), in(60s));
        seen[static_cast<std::size_t>(terms.rank)] = values ? join(*values, ",") : values.error().context;
    });
    for (const auto& values : seen) CHECK(values == "from 0,from 1,from 2,from 3,from 4");
}

TEST_CASE("an exchange that not all came to names those who did not") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    const auto come = [&](int rank) {
        return exchange({.rank = rank, .size = 14, .id = "world", .place = place}, "greeting", "x", in(10ms));
    };
    for (const int rank : {0, 2, 3, 5, 6, 7, 8, 9, 10, 11})
        CHECK(place->publish(cat("world/greeting/", rank), "x", in(60s)).has_value());
    CHECK(come(12).error().context ==
          "communicator world, rank 12 of 14: ranks 1, 4, 13 did not join (world/greeting/1 was not published)");
    CHECK(come(1).error().context ==
          "communicator world, rank 1 of 14: ranks 4, 13 did not join (world/greeting/4 was not published)");
    CHECK(come(4).error().context ==
          "communicator world, rank 4 of 14: rank 13 did not join (world/greeting/13 was not published)");
}

TEST_CASE("an exchange passes on what else went wrong") {
    const auto values = exchange({.rank = 1, .size = 2, .id = "world", .place = std::make_shared<GonePlace>()},
                                 "greeting", "x", in(60s));
    REQUIRE_FALSE(values.has_value());
    CHECK(values.error().code == Errc::peer_closed);
    CHECK(values.error().context == "communicator world, rank 1 of 2: the store has gone");
}

TEST_CASE("what ranks with a key publish for each other is read by them alone, and where they put it") {
    const WireSecurity ours{.key = std::string(32, 'k')}, theirs{.key = std::string(32, 'x')};
    for (const std::size_t size : {0, 1, 32, 128, 200}) {
        const std::string text(size, 'u');
        const auto sealed = seal_text(ours, "world/0", text);
        CHECK(open_text(ours, "world/0", sealed).value() == text);
        CHECK(seal_text(ours, "world/0", text) != sealed);
        if (size > 8) CHECK(sealed.find("uuuu") == std::string::npos);
        CHECK(open_text(theirs, "world/0", sealed).error().code == Errc::refused);
        CHECK(open_text(ours, "world/1", sealed).error().code == Errc::refused);
        for (std::size_t at = 0; at < sealed.size(); ++at) {
            auto changed = sealed;
            changed[at] = static_cast<char>(changed[at] ^ 1);
            CHECK(open_text(ours, "world/0", changed).has_error());
            CHECK(open_text(ours, "world/0", std::string_view(sealed).substr(0, at)).has_error());
        }
    }
    CHECK(open_text({}, "world/0", seal_text({}, "world/0", "in the clear")).value() == "in the clear");
}
