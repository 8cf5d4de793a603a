#include "worker_runtime/pairs/pair_answer.h"

#include "tests/support/catch.h"

using namespace muster::runtime;

TEST_CASE("an answer comes back as it was given") {
    const PairAnswer given{{.passed = false,
                            .why = "no connection: refused",
                            .latency_us = 50,
                            .mbytes_per_s = 900,
                            .link_mbytes_per_s = 1100,
                            .sees_losses = true,
                            .clock_ms = -7},
                           1'700'000'000'000};
    const auto read = read_answer(write_answer(given));
    REQUIRE(read.has_value());
    CHECK_FALSE(read->result.passed);
    CHECK(read->result.why == given.result.why);
    CHECK(read->result.latency_us == 50);
    CHECK(read->result.mbytes_per_s == 900);
    CHECK(read->result.link_mbytes_per_s == 1100);
    CHECK(read->result.sees_losses);
    CHECK(read->result.clock_ms == -7);
    CHECK(read->wall_ms == given.wall_ms);
    const auto passed = read_answer(write_answer({{.passed = true}, 1}));
    REQUIRE(passed.has_value());
    CHECK(passed->result.passed);
    CHECK(passed->result.why.empty());
    CHECK_FALSE(passed->result.sees_losses);
}

TEST_CASE("the reason of a large group is cut to its front") {
    const auto read = read_answer(write_answer({{.why = "no connection: " + std::string(10'000, 'x')}, 1}));
    REQUIRE(read.has_value());
    CHECK(read->result.why.size() <= 300);
    CHECK(read->result.why.starts_with("no connection: "));
}

TEST_CASE("the answer of another build is an error, and no failed test") {
    for (const auto* other :
         {"", "1 50 900 1100 -7 1700000000000 ", "1 50 900 1100 1 -7 1700000000000 ",
          "2:1 50 900 1100 1 -7 1700000000000 ", "3:1 50 900 1100 1 -7 1700000000000 ",
          "4:1 50 900 1100 1 -7 1700000000000 ", "5:1 50 900 1100 1 1500 -7 1700000000000 ", "6:1 50 900 1100 1 -7"}) {
        INFO(other);
        const auto read = read_answer(other);
        REQUIRE(read.has_error());
        CHECK(read.error().context.ends_with("install the same build of muster on all nodes"));
    }
}
