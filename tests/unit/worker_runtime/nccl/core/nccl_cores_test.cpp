// The decisions behind the NCCL transport: which rank holds a root, which library will do, who is missing, and in which
// order a process gets out of communicators that have failed.
#include <algorithm>
#include <set>

#include "tests/support/catch.h"
#include "worker_runtime/nccl/core/nccl_abort.h"
#include "worker_runtime/nccl/core/nccl_ranks.h"
#include "worker_runtime/nccl/core/nccl_roots.h"
#include "worker_runtime/nccl/core/nccl_version.h"

namespace muster::runtime {

using Catch::Contains;

TEST_CASE("a world has one root for each 128 to 256 ranks") {
    CHECK(NcclRoots::for_world(1).count == 1);
    CHECK(NcclRoots::for_world(256).count == 1);
    CHECK(NcclRoots::for_world(257).count == 2);
    CHECK(NcclRoots::for_world(4096).count == 16);
    for (int size = 257; size <= 3000; ++size) {
        const int count = NcclRoots::for_world(size).count;
        CHECK((size / count >= 128 && (size + count - 1) / count <= 256));
    }
}

TEST_CASE("each root is held by one rank, in order, and blocks are as even as possible") {
    for (const int size : {1, 2, 7, 256, 257, 511, 513, 1000, 4097}) {
        for (const int count : {1, 2, 3, 7, NcclRoots::for_world(size).count}) {
            if (count > size) continue;
            const NcclRoots roots{.size = size, .count = count};
            std::vector<int> holders;
            for (int rank = 0; rank < size; ++rank) {
                const int root = roots.held_by(rank);
                if (root < 0) continue;
                REQUIRE(root == static_cast<int>(holders.size()));
                holders.push_back(rank);
            }
            INFO(size << " ranks, " << count << " roots");
            REQUIRE(static_cast<int>(holders.size()) == count);
            CHECK(holders.front() == 0);
            holders.push_back(size);
            std::vector<int> blocks;
            for (std::size_t i = 0; i + 1 < holders.size(); ++i) blocks.push_back(holders[i + 1] - holders[i]);
            // NCCL's own rule: the larger blocks come first.
            CHECK(std::is_sorted(blocks.rbegin(), blocks.rend()));
            CHECK(blocks.front() - blocks.back() <= 1);
        }
    }
}

TEST_CASE("unique ids have keys of their communicator and root") {
    CHECK(nccl_root_key("world/0.1", 3) == "world/0.1/nccl/root/3");
    CHECK(nccl_root_keys("world", {.size = 600, .count = 2}) ==
          std::vector<std::string>{"world/nccl/root/0", "world/nccl/root/1"});
}

TEST_CASE("a library's version reads as people write it") {
    CHECK(nccl_version_text(22809) == "2.28.9");
    CHECK(nccl_version_text(21405) == "2.14.5");
    CHECK(nccl_version_text(2708) == "2.7.8");
}

TEST_CASE("features need the version and the function") {
    const auto all = [](std::string_view) { return true; };
    const auto newest = nccl_features(23203, all).value();
    CHECK((newest.split && newest.registration && newest.group_abort && newest.several_roots && newest.shrink));
    const auto old = nccl_features(21806, all).value();
    CHECK((old.split && !old.registration && !old.group_abort && !old.several_roots && !old.shrink));
    const auto oldest = nccl_features(21400, all).value();
    CHECK(!oldest.split);
    const auto stripped =
        nccl_features(23203, [](std::string_view name) { return name != "ncclCommRegister"; }).value();
    CHECK((!stripped.registration && stripped.split && stripped.several_roots));
}

TEST_CASE("a library that is too old, or lacks what every one has, is refused with the reason") {
    const auto all = [](std::string_view) { return true; };
    CHECK_THAT(nccl_features(21399, all).error().context, Contains("2.13.99 is too old") && Contains("2.14.0"));
    const auto lacking = nccl_features(22809, [](std::string_view name) { return !name.starts_with("ncclComm"); });
    CHECK(lacking.error().code == Errc::unsupported);
    CHECK_THAT(lacking.error().context,
               Contains("NCCL 2.28.9 lacks ncclCommInitRankConfig, ncclCommFinalize, ncclCommDestroy, ncclCommAbort"));
}

namespace {

std::vector<NcclRank> ranks_of_one_host(int size) {
    std::vector<NcclRank> ranks;
    for (int rank = 0; rank < size; ++rank) {
        ranks.push_back({.host = "gpu07",
                         .kernel = "k",
                         .pid_space = "p",
                         .pid = 100 + rank,
                         .device = "0000:0" + std::to_string(rank) + ":00.0",
                         .version = 22809});
    }
    return ranks;
}

NcclProgress in(std::uint64_t number, std::string what) {
    return {.number = number, .what = std::move(what)};
}

}  // namespace

TEST_CASE("a rank's description survives the store, and nonsense does not") {
    NcclRank rank = ranks_of_one_host(2)[1];
    rank.host_id = "b";
    const auto read = NcclRank::decode(rank.encode()).value();
    CHECK((read.host == "gpu07" && read.kernel == "k" && read.pid_space == "p" && read.pid == 101));
    CHECK((read.device == rank.device && read.host_id == "b" && read.version == 22809));
    for (const auto* const bad : {"", "a\tb", "a\tb\tc\tx\te\tf\t1", "a\tb\tc\t1\te\tf\t1\tg"}) {
        CHECK(NcclRank::decode(bad).error().code == Errc::bad_frame);
    }
    const auto progress = NcclProgress::decode(in(7, "barrier").encode()).value();
    CHECK((progress.number == 7 && progress.what == "barrier" && !progress.left));
    CHECK(NcclProgress::decode("in\tx\ty").has_error());
}

TEST_CASE("ranks with one GPU or two libraries are named, unless NCCL was told to take them") {
    auto ranks = ranks_of_one_host(3);
    CHECK(check_ranks(ranks, false).has_value());
    ranks[2].device = ranks[1].device;
    CHECK_THAT(check_ranks(ranks, false).error().context,
               Contains("rank 1 (pid 101 on gpu07) and rank 2 (pid 102 on gpu07) both use GPU 0000:01:00.0"));
    CHECK(check_ranks(ranks, true).has_value());
    ranks[2].host_id = "another";
    CHECK(check_ranks(ranks, false).has_value());
    ranks[1].version = 22703;
    CHECK_THAT(check_ranks(ranks, false).error().context,
               Contains("rank 0 (pid 100 on gpu07) has NCCL 2.28.9, but rank 1 (pid 101 on gpu07) has 2.27.3"));
}

TEST_CASE("processes are watched only where their numbers mean the same") {
    auto ranks = ranks_of_one_host(2);
    CHECK(sees_process(ranks[0], ranks[1]));
    ranks[1].pid_space = "container";
    CHECK(!sees_process(ranks[0], ranks[1]));
    ranks = ranks_of_one_host(2);
    ranks[1].kernel = "another host";
    CHECK(!sees_process(ranks[0], ranks[1]));
}

TEST_CASE("a late operation is explained by who is missing, who left, and who does something else") {
    const auto ranks = ranks_of_one_host(4);
    const std::string what = "all_reduce sum f32 x 8";
    CHECK(explain(ranks, {in(5, what), in(5, what), in(5, what), in(5, what)}, 0) ==
          "all ranks have reached it: the GPUs, or the network between them, make no progress");
    CHECK(explain(ranks, {in(5, what), in(3, "barrier"), in(5, what), in(0, "")}, 0) ==
          "rank 1 (pid 101 on gpu07) has not reached it (last seen in operation 3: barrier); "
          "rank 3 (pid 103 on gpu07) has not reached it (no operation seen)");
    CHECK(explain(ranks, {in(5, what), in(5, what), in(5, "barrier"), in(5, what)}, 1) ==
          "rank 2 (pid 102 on gpu07) runs barrier instead");
    CHECK(explain(ranks, {in(5, what), {.number = 4, .what = "x", .left = true}, in(5, what), in(5, what)}, 0) ==
          "rank 1 (pid 101 on gpu07) has closed the communicator");
    // A rank that is ahead has been through this operation.
    CHECK_THAT(explain(ranks, {in(5, what), in(6, "barrier"), in(5, what), in(5, what)}, 0),
               Contains("all ranks have reached it"));
}

TEST_CASE("a sentence names eight ranks at most") {
    const auto ranks = ranks_of_one_host(9);
    auto many = ranks;
    many.resize(100, ranks[0]);
    std::vector<NcclProgress> all(100, in(1, "barrier"));
    all[0] = in(2, "barrier");
    const auto text = explain(many, all, 0);
    CHECK_THAT(text, Contains("rank 8 (pid ") && Contains("; others too"));
    CHECK(text.find("rank 9 (pid ") == std::string::npos);
}

namespace {

constexpr Instant start{};
using Phase = NcclAbortPhase;
using Action = NcclAbortAction;

}  // namespace

TEST_CASE("a failure is told, calls end, memory goes, everything is aborted, and only then is memory freed") {
    NcclAbort abort(8s);
    CHECK(abort.next_deadline() == std::nullopt);
    CHECK(abort.tick(start + 1000s) == Action::none);
    CHECK(abort.failed("rank 1 died", start) == Action::publish);
    CHECK(abort.ended(Phase::publishing, start + 10ms) == Action::settle);
    CHECK(abort.ended(Phase::settling, start + 20ms) == Action::deregister);
    CHECK(abort.ended(Phase::deregistering, start + 30ms) == Action::abort_all);
    CHECK(abort.ended(Phase::aborting, start + 40ms) == Action::release);
    CHECK(abort.next_deadline() == start + 8s);
    CHECK(abort.ended(Phase::releasing, start + 50ms) == Action::none);
    CHECK(abort.phase() == Phase::over);
    CHECK(abort.next_deadline() == std::nullopt);
    CHECK(abort.tick(start + 1000s) == Action::none);
    CHECK(abort.why() == "rank 1 died");
}

TEST_CASE("only the first failure counts") {
    NcclAbort abort(8s);
    abort.failed("first", start);
    CHECK(abort.failed("second", start + 1s) == Action::none);
    CHECK(abort.why() == "first");
    CHECK(abort.next_deadline() == start + 1s);  // not moved by the second
}

TEST_CASE("a store that does not answer holds up the abort for an eighth of the time") {
    NcclAbort abort(8s);
    abort.failed("x", start);
    CHECK(abort.next_deadline() == start + 1s);
    CHECK(abort.tick(start + 999ms) == Action::none);
    CHECK(abort.tick(start + 1s) == Action::settle);
    // Its end, late, moves nothing.
    CHECK(abort.ended(Phase::publishing, start + 2s) == Action::none);
    CHECK(abort.phase() == Phase::settling);
    CHECK(abort.next_deadline() == start + 8s);
}

TEST_CASE("whatever step hangs, the process leaves at the deadline and not before") {
    for (const auto stuck : {Phase::settling, Phase::deregistering, Phase::aborting, Phase::releasing}) {
        NcclAbort abort(8s);
        abort.failed("x", start);
        for (auto phase = Phase::publishing; phase != stuck; phase = abort.phase()) abort.ended(phase, start + 1ms);
        CHECK(abort.phase() == stuck);
        CHECK(abort.next_deadline() == start + 8s);
        CHECK(abort.tick(start + 7999ms) == Action::none);
        CHECK(abort.tick(start + 8s) == Action::leave);
        CHECK(abort.ended(stuck, start + 9s) == Action::none);
        CHECK(abort.tick(start + 10s) == Action::none);
    }
}

}  // namespace muster::runtime
