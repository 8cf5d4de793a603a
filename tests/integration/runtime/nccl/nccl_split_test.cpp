// Faults in a split of a communicator over NCCL, through the plugin and over the stand-ins.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/nccl/nccl_group.h"
#include "tests/support/catch.h"
#include "tests/support/own_process.h"

namespace muster {

using namespace runtime;
using test::join_nccl_group;
using test::NcclSetting;
using test::publish_wrong;
using test::RankProcesses;
using test::run_nccl_ranks;
using test::sum;
using test::told;

namespace {

/// Ends this process after so many calls of the store by the thread that says so.
struct Death {
    void come_after(int calls) {
        calls_left = calls;
        dying = std::this_thread::get_id();
    }
    void count() {
        if (dying == std::this_thread::get_id() && calls_left-- == 0) ::raise(SIGKILL);
    }
    std::atomic<std::thread::id> dying{};
    int calls_left = 0;
};

}  // namespace

TEST_CASE("a child that cannot be split off ends the parent on all ranks") {
    CHECK(run_nccl_ranks(
              2,
              [](Communicator& world, int rank) {
                  return told(world.split(0, 0), {rank == 1 ? "ncclCommSplit: NCCL reports" : "rank 1 (pid "});
              },
              [](int rank) { return NcclSetting{.fault = rank == 1 ? "split_fails" : ""}; }) == "");
}

TEST_CASE("a rank that dies in a split is named by the others, wherever NCCL is with it") {
    for (const char* const stage : {"0", "1", "2"}) {
        INFO("stage " << stage);
        CHECK(run_nccl_ranks(
                  3,
                  [](Communicator& world, int rank) -> std::string {
                      auto part = world.split(rank == 2 ? 1 : 0, rank);
                      return told(part ? sum(world) : Result<void>(part.error()), {"rank 1 (pid ", "died"});
                  },
                  [&](int rank) {
                      return NcclSetting{.fault = rank == 1 ? cat("dies_in_split:", stage) : "", .timeout = 100s};
                  },
                  {1}) == "");
    }
}

TEST_CASE("a rank that dies where a part is made anew, for a library without splits, is named at each step") {
    int steps = 0;
    for (bool has_died = true; has_died && steps < 100; ++steps) {
        INFO("after " << steps << " calls of the store");
        RankProcesses ranks(3, [&](const GroupTerms& given) {
            ::setenv("MUSTER_STANDIN_NCCL_VERSION", "21703", 1);
            GroupTerms group = given;
            const auto death = std::make_shared<Death>();
            group.place = std::make_shared<test::CountedPlace>(given.place, [death] { death->count(); });
            auto world = join_nccl_group(group, {.timeout = 100s, .meeting_timeout = 100s});
            if (!world) return publish_wrong(group, world.error().context);
            // All have joined. A rank that is slow to leave this sum may learn of the death in it.
            (void)sum(*world);
            if (group.rank == 1) death->come_after(steps);
            auto part = world->split(0, group.rank);
            if (group.rank == 1) {
                [[maybe_unused]] const auto told_it = given.place->publish("lived", "1", no_deadline);
                ::_exit(0);  // without a word, as if killed
            }
            Result<void> done = part ? Result<void>() : Result<void>(part.error());
            while (done) done = sum(*world);
            return publish_wrong(given, told(done, {"rank 1 (pid ", "died"}));
        });
        while (!ranks.ended(1)) std::this_thread::sleep_for(1ms);
        CHECK(test::wrong_of(ranks, 3, {1}) == "");
        has_died = !std::filesystem::exists(ranks.file("lived"));
    }
    CHECK(steps > 5);
    CHECK(steps < 100);
}

TEST_CASE("an abort while a child is split off leaves no communicator, thread or descriptor") {
    RankProcesses ranks(2, [&](const GroupTerms& group) {
        const auto communicators = [] { return test::call_stand_in<unsigned>("standin_communicators"); };
        const auto limit = std::chrono::steady_clock::now() + 40s;
        std::optional<test::Holdings> before;
        std::string wrong;
        for (int round = 0; round < 7 && wrong.empty(); ++round) {
            GroupTerms terms = group;
            terms.id = cat("round", round);
            auto world = join_nccl_group(terms, {.fault = round > 0 ? "split_ends_late" : ""});
            if (!world) {
                wrong = world.error().context;
                break;
            }
            std::thread aborter;
            if (round > 0 && group.rank == 0)
                aborter = std::thread([&] {
                    // The child is there, and its handle is not.
                    while (communicators() < 2 && std::chrono::steady_clock::now() < limit)
                        std::this_thread::sleep_for(1ms);
                    world->abort("on purpose");
                });
            {
                auto part = world->split(0, 0);
                if (round > 0) wrong = told(part, {"on purpose"});
                if (round == 0 && !part) wrong = part.error().context;
            }
            if (aborter.joinable()) aborter.join();
            { const Communicator gone = std::move(*world); }
            if (communicators() > 0) wrong += cat(communicators(), " communicators are left");
            if (round == 0) before.emplace();
        }
        // The stand-in's hubs may take a moment to notice that they are alone.
        if (before) wrong += before->left_over_by(limit);
        return publish_wrong(group, wrong);
    });
    CHECK(test::wrong_of(ranks, 2) == "");
}

}  // namespace muster
