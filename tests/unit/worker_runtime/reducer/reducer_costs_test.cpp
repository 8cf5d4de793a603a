// What the reducer says that its steps cost.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/line_times.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"

using namespace muster;
using namespace muster::test;

namespace {

/// A backward pass that takes so long, and leaves the processor to the other ranks.
void compute(Duration duration) {
    std::this_thread::sleep_for(duration);
}

std::string wrong_parts(const StepCost& cost) {
    if (cost.samples != 7) return cat("samples: ", cost.samples);
    if (cost.data_wait != 1us) return "the wait for data is wrong";
    if (cost.total != cost.compute + cost.data_wait + cost.exposed) return "the parts are not the whole";
    // Four buckets, and the control block.
    if (cost.bytes != 4 * 512 + 1 + 8 + 2 * 8) return cat("bytes: ", cost.bytes);
    return {};
}

/// What is wrong in each of ten tries. On a busy host a thread may stand still for longer than all that is measured.
template <class Try>
std::string always_wrong(const Try& once) {
    std::string wrong = once();
    for (int i = 1; i < 10 && !wrong.empty(); ++i) wrong = once();
    return wrong;
}

}  // namespace

TEST_CASE("a step's costs: all ranks' samples, what one waited, and who was late") {
    const auto wrong = always_wrong([]() -> std::string {
        ThreadGroup group(2);
        std::vector<CostSummary> costs(2);
        const auto failed = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(eight(), 0);
            auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
            if (!reducer) return complaint(reducer);
            for (int step = 0; step < 6; ++step) {
                reducer->add_data_wait(1us);
                (void)reducer->begin_step(static_cast<float>(3 + communicator.rank()));
                for (const int i : {7, 6}) (void)reducer->mark_ready(i);
                if (communicator.rank() == 1) compute(30ms);
                for (const int i : {5, 4, 3, 2, 1, 0}) (void)reducer->mark_ready(i);
                if (auto finished = reducer->finish(); !finished) return complaint(finished);
                if (auto parts = wrong_parts(reducer->last_step()); !parts.empty()) return parts;
            }
            costs[static_cast<std::size_t>(communicator.rank())] = reducer->costs();
            return {};
        });
        REQUIRE(failed == "");
        CHECK(costs[0].bucket_count == 4);
        CHECK(costs[0].bucket_bytes == 2048);
        CHECK(costs[1].lateness == costs[0].lateness);
        REQUIRE(costs[0].lateness.size() == 2);
        if (costs[0].mean.exposed <= 2ms) return "rank 0 did not wait for rank 1";
        if (costs[0].mean.communication <= 2ms) return "rank 0's wait was no communication";
        return costs[0].lateness[1] > costs[0].lateness[0] ? "" : "rank 1 was not late";
    });
    CHECK(wrong == "");
}

TEST_CASE("a collective that is waited for is communication, too, where one bucket is all there is") {
    const auto wrong = always_wrong([] {
        ThreadGroup group(2);
        return group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(eight(), 0);
            auto reducer = GradientReducer::make(communicator, parameters.list());
            if (!reducer) return complaint(reducer);
            if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
            for (int i = 7; i >= 0; --i) (void)reducer->mark_ready(i);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            const auto& cost = reducer->last_step();
            return 2 * cost.communication > cost.exposed ? "" : "what was waited for is not all communication";
        });
    });
    CHECK(wrong == "");
}

TEST_CASE("who is late is told by what the ranks waited in the whole step before") {
    ThreadGroup group(2);
    std::vector<Duration> waited(2);
    std::vector<std::vector<Duration>> lateness(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        const OwnedParameters parameters(eight(), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        for (int step = 0; step < 4; ++step) {
            if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
            for (int i = 7; i >= 0; --i) (void)reducer->mark_ready(i);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            // The first that is judged. They tell each other microseconds.
            if (step == 2) waited[rank] = std::chrono::floor<std::chrono::microseconds>(reducer->last_step().exposed);
        }
        lateness[rank] = reducer->costs().lateness;
        return {};
    });
    CHECK(wrong == "");
    const auto longest = std::max(waited[0], waited[1]);
    CHECK(lateness[0] == std::vector<Duration>{longest - waited[0], longest - waited[1]});
    CHECK(lateness[1] == lateness[0]);
}

TEST_CASE("a step whose local pass made new buckets is left out of the mean") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        // Parameter 3 is never used, which is known after three steps.
        const auto pass = [&](bool local) -> std::string {
            const auto layout = local ? reducer->begin_local_step() : reducer->begin_step();
            if (!layout) return complaint(layout);
            if (local && *layout != Layout::moved) return "the local pass has the old buckets";
            for (const int i : {7, 6, 5, 4, 2, 1, 0}) (void)reducer->mark_ready(i);
            return complaint(reducer->finish());
        };
        for (int step = 0; step < 5; ++step) {
            if (auto failed = step == 3 ? pass(true) : std::string(); !failed.empty()) return failed;
            if (auto failed = pass(false); !failed.empty()) return failed;
        }
        const auto costs = reducer->costs();  // without the first two, and step 3
        return costs.step_count == 2 && costs.left_out_count == 3 ? std::string() : cat(costs.step_count, " count");
    });
    CHECK(wrong == "");
}

TEST_CASE("communication that is over before the backward pass is counts as hidden") {
    const auto wrong = always_wrong([] {
        ThreadGroup group(1);
        return group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(eight(), 0);
            auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
            if (!reducer) return complaint(reducer);
            (void)reducer->begin_step();
            group.clear_history();
            group.hold();
            for (const int i : {7, 6}) (void)reducer->mark_ready(i);
            // The lane's own thread carries it, and only from there on does it take time.
            if (!group.wait_for_arrival()) return "the bucket was not launched";
            compute(20ms);
            group.let_go();
            if (!group.wait_for_history(1)) return "the bucket was not launched";
            for (const int i : {5, 4, 3, 2, 1, 0}) (void)reducer->mark_ready(i);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            return reducer->last_step().overlap() > 10ms ? std::string() : "nothing was hidden";
        });
    });
    CHECK(wrong == "");
}

TEST_CASE("a resumed run does not judge its own first steps either: nobody is late in them") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        const auto step = [&](GradientReducer& reducer) -> std::string {
            if (auto begun = reducer.begin_step(); !begun) return complaint(begun);
            for (const int i : {7, 6}) (void)reducer.mark_ready(i);
            if (communicator.rank() == 1) compute(2ms);
            for (const int i : {5, 4, 3, 2, 1, 0}) (void)reducer.mark_ready(i);
            return complaint(reducer.finish());
        };
        ReducerState state;
        for (const bool resumed : {false, true}) {
            auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
            if (!reducer) return complaint(reducer);
            if (auto restored = reducer->restore(state); !restored) return complaint(restored);
            const auto late = [&] { return reducer->costs().lateness != std::vector<Duration>(2); };
            // The waits of a step are told in the one that follows it.
            for (int i = 0; i < 3; ++i) {
                if (auto failed = step(*reducer); !failed.empty()) return failed;
                if (late()) return cat(resumed ? "resumed" : "fresh", ": step ", i, " was judged");
            }
            if (auto failed = step(*reducer); !failed.empty()) return failed;
            if (!late()) return "the third step was not judged";
            reducer->keep(state);
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("rank 0 alone says unasked which buckets were chosen by measurement, and nothing of those that were not") {
    for (const double cap_mb : {ReducerOptions::automatic, 25.0}) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        const pid_t child = ::fork();
        if (child == 0) {
            ::dup2(ends[1], STDERR_FILENO);
            ThreadGroup group(2);
            const auto wrong = group.run([&](Communicator& communicator) {
                const OwnedParameters parameters(eight(), 0);
                return complaint(GradientReducer::make(communicator, parameters.list(), {.bucket_cap_mb = cap_mb}));
            });
            ::_exit(wrong.empty() ? 0 : 1);
        }
        ::close(ends[1]);
        std::string said(4096, '\0');
        std::size_t size = 0;
        for (ssize_t got = 1; got > 0; size += static_cast<std::size_t>(got)) {
            got = std::max<ssize_t>(::read(ends[0], said.data() + size, said.size() - size), 0);
        }
        said.resize(size);
        ::close(ends[0]);
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        if (cap_mb != ReducerOptions::automatic) {
            CHECK(said == "");
            continue;
        }
        CHECK_THAT(without_times(said),
                   Catch::StartsWith("muster: gradients: 8 parameters, ") &&
                       Catch::EndsWith(" MiB, chosen by measurement), wire same, 2 ranks over threads\n"));
        CHECK(std::count(said.begin(), said.end(), '\n') == 1);
    }
}
