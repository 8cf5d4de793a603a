// What rank 0 takes from a store that fails while it waits for the other ranks.
#include "worker_runtime/checkpoint/save_board.h"

#include <chrono>
#include <functional>
#include <memory>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// The store of a round that has ended: every wait at it was interrupted.
class ClosedStore final : public Store {
  public:
    Result<void> set(std::string_view /*key*/, std::string_view /*value*/) override { return closed(); }
    Result<std::string> get(std::string_view /*key*/, Duration /*timeout*/) override { return closed(); }
    Result<std::int64_t> add(std::string_view /*key*/, std::int64_t /*delta*/) override { return closed(); }
    Result<bool> erase(std::string_view /*key*/) override { return closed(); }

  private:
    static Error closed() { return {Errc::peer_closed, "the connection ended: the server closed it"}; }
};

Error failure_of_collect(const std::function<Result<void>()>& lost) {
    SaveBoard board(std::make_unique<ClosedStore>(), "feed", 0, 2, lost);
    const auto collected = board.collect(0, std::uint32_t{7}, std::chrono::steady_clock::now() + 60s);
    REQUIRE_FALSE(collected.has_value());
    return collected.error();
}

}  // namespace

TEST_CASE("a store whose connection ends with the round is the round's end, so the draft stays") {
    const auto failure = failure_of_collect([]() -> Result<void> {
        return Error{Errc::round_ended, "the round ended: node 1 was lost"};
    });
    CHECK(failure.code == Errc::cancelled);
    CHECK(failure.context == "the round ended: node 1 was lost");
}

TEST_CASE("a store that is lost while the round goes on fails the save") {
    const auto failure = failure_of_collect([] { return Result<void>(); });
    CHECK(failure.code == Errc::peer_closed);
    CHECK(failure.context == "rank 1: the connection ended: the server closed it");
}
