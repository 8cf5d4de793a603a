#include "worker_runtime/checkpoint/format/names.h"

#include "tests/support/catch.h"

namespace muster::runtime {

TEST_CASE("folders' names and what they mean belong together") {
    CHECK(to_string(CheckpointName{.step = 120}) == "step_00000120");
    CHECK(to_string(CheckpointName{.step = 120, .edition = 3}) == "step_00000120.3");
    CHECK(to_string(CheckpointName{.step = 1'234'567'890'123}) == "step_1234567890123");
    CHECK(to_string(DraftName{.step = 5, .round = 7, .nonce = "5eed"}) == "step_00000005.tmp-7-5eed");
    for (const std::int64_t step : {std::int64_t{0}, std::int64_t{99'999'999}, std::int64_t{100'000'000}}) {
        for (const int edition : {1, 2, 10}) {
            const CheckpointName name{.step = step, .edition = edition};
            CHECK(parse_checkpoint_name(to_string(name)) == name);
        }
        const DraftName draft{.step = step, .round = 12, .nonce = "00c0ffee"};
        CHECK(parse_draft_name(to_string(draft)) == draft);
        CHECK_FALSE(parse_checkpoint_name(to_string(draft)));
    }
}

TEST_CASE("other names are none of ours") {
    for (const char* text : {"", "step_", "step_1", "step_000000001", "step_0000000a", "step_00000001.",
                             "step_00000001.1", "step_00000001.02", "step_00000001.x", "step_-0000001", "Step_00000001",
                             "step_00000001 ", "step_99999999999999999999"}) {
        CHECK_FALSE(parse_checkpoint_name(text));
    }
    for (const char* text : {"step_00000001", "step_00000001.tmp", "step_00000001.tmp-", "step_00000001.tmp-1",
                             "x.tmp-1-a", "step_00000001.tmp-1-", "step_00000001.tmp-x-a", "step_00000001.tmp--1-a"}) {
        CHECK_FALSE(parse_draft_name(text));
    }
}

namespace {

std::vector<std::string> gone(std::vector<KeptCheckpoint> all, Retention retention) {
    std::vector<std::string> names;
    for (const auto& name : expendable(std::move(all), retention)) names.push_back(to_string(name));
    return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the newest few and every n-th are kept") {
    std::vector<KeptCheckpoint> all;
    for (std::int64_t step = 100; step <= 600; step += 100) all.push_back({.name = {.step = step}, .verified = true});
    CHECK(gone(all, {.last = 2}) == Names{"step_00000400", "step_00000300", "step_00000200", "step_00000100"});
    CHECK(gone(all, {.last = 2, .every = 300}) == Names{"step_00000400", "step_00000200", "step_00000100"});
    CHECK(gone(all, {.last = 6}).empty());
    CHECK(gone({}, {.last = 1}).empty());
}

TEST_CASE("the newest verified checkpoint is never removed, and damaged ones neither count nor go") {
    const KeptCheckpoint old{.name = {.step = 1}, .verified = true};
    const KeptCheckpoint unread{.name = {.step = 2}}, unread_too{.name = {.step = 3}};
    const KeptCheckpoint broken{.name = {.step = 4}, .damaged = true};
    CHECK(gone({old, unread, unread_too, broken}, {.last = 2}).empty());
    CHECK(gone({old, unread, unread_too, broken}, {.last = 1}) == Names{"step_00000002"});
    const KeptCheckpoint again{.name = {.step = 4, .edition = 2}, .verified = true};
    CHECK(gone({old, broken, again}, {.last = 1}) == Names{"step_00000001"});
}

TEST_CASE("files on a host's own disk are named by step and rank, and no other names are taken for one") {
    CHECK(to_string(LocalName{.step = 120, .rank = 3}) == "step_00000120.rank_00003.safetensors");
    const auto name = parse_local_name("step_00000120.rank_00003.safetensors");
    REQUIRE(name);
    CHECK(name->step == 120);
    CHECK(name->rank == 3);
    CHECK(parse_local_name(to_string(LocalName{.step = 1'234'567'890, .rank = 123'456})));
    for (const auto* other :
         {"", "step_00000120", "step_00000120.rank_00003.safetensors.new", "step_00000120.rank_3.safetensors",
          "step_120.rank_00003.safetensors", "step_00000120.rank_.safetensors", ".rank_00003.safetensors",
          "step_00000120.rank_-0003.safetensors", "step_00000120.2.rank_00003.safetensors",
          "step_00000120.rank_00003.rank_00004.safetensors", "step_00000120.rank_99999999999.safetensors",
          "rank_00003.safetensors", "step_00000120.rank_00003safetensors"}) {
        CHECK_FALSE(parse_local_name(other));
    }
}

}  // namespace muster::runtime
