// What ranks over NCCL find out about each other through the store, turn by turn.
#include "worker_runtime/nccl/nccl_status_board.h"

#include <functional>
#include <map>
#include <utility>

#include "muster/operation.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

namespace muster::runtime {

namespace {

/// A store that answers at once, and counts the questions.
class CountingPlace final : public MeetingPlace {
  public:
    Result<void> publish(std::string_view key, std::string_view value, Instant) override {
        values_[std::string(key)] = value;
        return {};
    }
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys, const MeetingWait& wait) override {
        ++questions;
        // The round's store has one connection: a wait without a parent keeps it until its end.
        if (wait.parent && meanwhile) std::exchange(meanwhile, nullptr)();
        std::vector<std::string> found;
        for (const auto& key : keys) {
            const auto at = values_.find(key);
            if (at == values_.end()) return Error{Errc::timed_out, key};
            found.push_back(at->second);
        }
        return found;
    }
    int questions = 0;
    std::function<void()> meanwhile;  ///< what another thread does during a wait, if it can

  private:
    std::map<std::string, std::string> values_;
};

struct Pair {
    Pair() {
        for (int rank = 0; rank < 2; ++rank) {
            const std::vector<NcclRank> ranks{{.host = "gpu07", .pid = 100}, {.host = "gpu07", .pid = 101}};
            news.push_back(
                NcclStatusBoard::start({.rank = rank, .size = 2, .id = "world", .place = place}, ranks).value());
        }
    }
    std::shared_ptr<CountingPlace> place = std::make_shared<CountingPlace>();
    std::vector<std::shared_ptr<NcclStatusBoard>> news;
};

OperationSignature summed(std::uint64_t count, DataType type = DataType::f32) {
    return {.kind = OperationKind::all_reduce, .type = type, .count = count};
}

}  // namespace

TEST_CASE("ranks that run nothing any more cease to ask, until they run something again") {
    Pair pair;
    for (int operation = 0; operation < 2; ++operation) {
        for (const auto& one : pair.news) one->begin(summed(10));
        for (int turn = 0; turn < 20; ++turn)
            for (const auto& one : pair.news) CHECK(one->compare().has_value());
        // One question a turn, at first and for five more.
        CHECK(pair.place->questions == (operation + 1) * 2 * 6);
    }
}

TEST_CASE("a rank that differs from one that says nothing more tells it by itself, after some turns") {
    // The other's last word was of the operation itself.
    Pair seen;
    seen.news[0]->begin(summed(10));
    seen.news[1]->begin(summed(10, DataType::i32));
    CHECK(seen.news[1]->compare().has_error() == false);
    const auto turns_until_error = [](NcclStatusBoard& news, std::string& text) {
        int turns = 1;
        for (auto same = news.compare(); turns < 100; same = news.compare(), ++turns) {
            if (same) continue;
            text = same.error().context;
            break;
        }
        return turns;
    };
    std::string text;
    CHECK(turns_until_error(*seen.news[0], text) == 6);
    CHECK(text ==
          "communicator world, rank 0 (pid 100 on gpu07): ranks differ in operation 1: rank 0 (pid 100 on gpu07) runs "
          "all_reduce sum f32 x 10, rank 1 (pid 101 on gpu07) runs all_reduce sum i32 x 10");

    // It was of a later one: between which is all that can be said.
    Pair beyond;
    for (const std::uint64_t number : {1u, 2u, 3u}) {
        beyond.news[0]->begin(summed(number));
        beyond.news[1]->begin(summed(number, number == 2 ? DataType::i32 : DataType::f32));
    }
    CHECK(beyond.news[1]->compare().has_value());
    CHECK(turns_until_error(*beyond.news[0], text) == 6);
    CHECK(text ==
          "communicator world, rank 0 (pid 100 on gpu07): ranks differ in an operation from 2 to 2: rank 0 (pid 100 on "
          "gpu07) and rank 1 (pid 101 on gpu07) did not run the same");
}

TEST_CASE("a rank that waits for the cause of a lost connection lets its thread tell it that sees a peer's end") {
    Pair pair;
    pair.place->meanwhile = [&pair] { pair.news[0]->publish_failure(pair.news[0]->explain_end(1).value()); };
    CHECK(pair.news[0]->cause_of({Errc::peer_closed, "NCCL reports a network error"}).context ==
          "communicator world, rank 0 (pid 100 on gpu07): rank 0 (pid 100 on gpu07) says: rank 1 (pid 101 on gpu07) "
          "died");
}

}  // namespace muster::runtime
