// Loading from the memory of ranks that survived a failure.
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "muster/clean_step.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "tests/support/thread_group.h"
#include "tests/unit/worker_runtime/checkpoint/kept_snapshots.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"

using namespace muster;
using namespace muster::test;

namespace {

struct Survivor {
    CleanStep clean;
    std::vector<std::int64_t> weight =
        std::vector<std::int64_t>(under_sanitizer ? 200'000 : 700'000);  // several parts of 1 MiB
    CheckpointState state;

    /// The state after `step`, on any rank.
    void train_to(std::int64_t step) {
        weight.assign(weight.size(), 100 * step);
        clean.set(step);
    }
    /// "4 4": all of the memory is of this step, and so says `clean`.
    [[nodiscard]] std::string text() const {
        for (const auto value : weight)
            if (value != weight.front()) return "torn";
        return cat(weight.front() / 100, ' ', clean.step());
    }
};

/// `steps`: of which step each rank's state is; -1: a new process; -2: one that was interrupted in its step 6.
/// Every rank's answer. A load that finds nothing to return to is called again, as in the next round.
std::vector<std::string> go_on(const std::vector<std::int64_t>& steps,
                               const std::function<void(int rank, Survivor&)>& change = {}, bool as_saved = false,
                               std::int64_t saved_step = -1) {
    const ScratchFolder scratch;
    std::vector<std::string> told(steps.size());
    StoreInMemory store;
    const auto place = std::make_shared<MeetingInMemory>();
    std::vector<int> members(steps.size());
    std::iota(members.begin(), members.end(), 0);
    const auto wrong = ThreadGroup(static_cast<int>(steps.size())).run([&](const Communicator& thread) -> std::string {
        const auto rank = static_cast<std::size_t>(thread.rank());
        auto world = loopback_group(place, members, thread.rank());
        if (!world) return world.error().context;
        auto opened =
            Checkpointer::open(**world, store.connect(), {.job = "job", .round = 9}, {.directory = scratch / "c"});
        if (!opened) return opened.error().context;
        auto& saver = *opened;
        Survivor part;
        part.state.tensors = {StateTensor::whole("weight", TensorType::i64,
                                                 {static_cast<std::int64_t>(part.weight.size())}, part.weight.data())};
        if (saved_step >= 0) {
            part.train_to(saved_step);
            if (auto saved = saver.save(saved_step, part.state); !saved) return saved.error().context;
            if (auto saved = saver.finish(); !saved) return saved.error().context;
            part.clean.begin();
        }
        if (steps[rank] >= 0) part.train_to(steps[rank]);
        if (steps[rank] < 0) part.weight.assign(part.weight.size(), 7);
        if (steps[rank] == CleanStep::torn) {
            part.clean.set(5);
            part.clean.begin();
        }
        if (as_saved && steps[rank] < 0) part.state.tensors.clear();
        part.state.values["cursor"] = cat(steps[rank]);
        if (change) change(thread.rank(), part);
        int placed = 0;
        const auto put = [&](std::vector<StateTensor>& tensors) -> Result<void> {
            tensors.front().data = part.weight.data();
            ++placed;
            return {};
        };
        const auto load = [&] {
            return as_saved ? saver.load_as_saved(part.state, put, part.clean) : saver.load(part.state, part.clean);
        };
        const auto loaded = load();
        auto& mine = told[rank];
        if (!loaded) {
            mine = loaded.error().context;
            if (loaded.error().code != Errc::not_found) return {};
            const auto again = load();
            mine = cat(mine, ", then ", again ? "as if new" : again.error().context);
        } else if (!*loaded) {
            mine = cat("none, ", part.clean.step());
        } else {
            mine = cat((*loaded)->from_survivor ? "survivor " : "saved ", (*loaded)->step, ": ", part.text(),
                       (*loaded)->from_survivor ? cat(", cursor ", part.state.values["cursor"]) : "",
                       (*loaded)->skipped.empty() ? "" : cat(", skipped ", (*loaded)->skipped.front()),
                       placed > 0 ? ", placed" : "");
        }
        return {};
    });
    if (!wrong.empty()) return {wrong};
    return told;
}

using Answers = std::vector<std::string>;

}  // namespace

TEST_CASE("the ranks of the highest clean step give their state to all others") {
    const std::string all = "survivor 5: 5 5, cursor 5";
    CHECK(go_on({-1, 5, 5, 5}) == Answers(4, all));
    CHECK(go_on({5, -1, 4, 5}) == Answers(4, all));
    CHECK(go_on({-1, -1, 5}) == Answers(3, all));
    CHECK(go_on({5, 5}) == Answers(2, all));
    CHECK(go_on({-1, 0}) == Answers(2, "survivor 0: 0 0, cursor 0"));
}

TEST_CASE("a rank without tensors gets those of a survivor, which keeps its own") {
    CHECK(go_on({-1, 5, 4}, {}, true) == Answers{"survivor 5: 5 -2, cursor 5, placed", "survivor 5: 5 5, cursor 5",
                                                 "survivor 5: 5 -2, cursor 5, placed"});
}

TEST_CASE("without a clean state, and without a checkpoint, there is nothing to load") {
    CHECK(go_on({-1, -1}) == Answers(2, "none, -1"));
}

TEST_CASE("a checkpoint is loaded where the survivors' states are not one") {
    const auto differs = [](int rank, Survivor& part) { part.weight.back() += rank == 2 ? 1 : 0; };
    for (const auto& answer : go_on({-1, 5, 5}, differs, false, 3))
        CHECK_THAT(answer, Catch::StartsWith("saved 3: 3 3, skipped the survivors' state of step 5: ") &&
                               Catch::Contains("'weight' is not the same on all ranks: rank 2"));
}

TEST_CASE("a checkpoint is loaded where what survivors hold besides tensors differs") {
    const auto differs = [](int rank, Survivor& part) { part.state.values["learning rate"] = rank == 2 ? "1" : "2"; };
    for (const auto& answer : go_on({-1, 5, 5}, differs, false, 3))
        CHECK_THAT(answer, Catch::StartsWith("saved 3: 3 3, skipped the survivors' state of step 5: ") &&
                               Catch::Contains("differs between these ranks"));
    // Ranks that get the state of another one may hold anything.
    CHECK(go_on({-1, 4, 5}, differs) == Answers(3, "survivor 5: 5 5, cursor 5"));
}

TEST_CASE("survivors whose states are not one, and who find nothing to return to, do not begin as if they were new") {
    const auto differs = [](int rank, Survivor& part) { part.weight.back() += rank == 2 ? 1 : 0; };
    const std::string nothing = "there is no copy and no checkpoint to return to: ";
    const std::string none_whole = nothing + "no survivor has the whole state of a step; take snapshot(0)";
    for (const auto& answer : go_on({-1, 5, 5}, differs))
        CHECK_THAT(answer, Catch::StartsWith(nothing + "the survivors' state of step 5: ") &&
                               Catch::Contains(", then " + none_whole));
    // Also where no rank is clean.
    for (const auto& steps : {std::vector<std::int64_t>{-2, -2}, {-1, -2}, {-2, -1}})
        for (const auto& answer : go_on(steps))
            CHECK_THAT(answer, Catch::StartsWith(none_whole) && Catch::Contains(", then " + none_whole));
}

TEST_CASE("a rank that was interrupted inside a step gets the state of a survivor, or all load a checkpoint") {
    CHECK(go_on({-2, 5, -1}) == Answers(3, "survivor 5: 5 5, cursor 5"));
    CHECK(go_on({-2, -1}, {}, false, 3) == Answers(2, "saved 3: 3 3"));
}

TEST_CASE("a checkpoint is loaded where a rank has a part of its own") {
    const auto text = [](int rank, Survivor& part) { part.state.rank_value = rank == 1 ? "generator" : ""; };
    const std::string saved =
        "saved 3: 3 3, skipped the survivors' state of step 5: a rank has shards, rank_value or rank_bytes, which no "
        "other rank can give it";
    CHECK(go_on({-1, 5}, text, false, 3) == Answers(2, saved));
    const auto bytes = [](int rank, Survivor& part) { part.state.rank_bytes.resize(rank == 1 ? 8 : 0); };
    CHECK(go_on({-1, 5}, bytes, false, 3) == Answers(2, saved));
}

TEST_CASE("a survivor of another model is an error that names the tensor") {
    const auto other = [](int rank, Survivor& part) {
        if (rank == 0) part.state.tensors.front().name = "other";
    };
    for (const auto& answer : go_on({-1, 5}, other)) CHECK_THAT(answer, Catch::Contains("'other'"));
}
