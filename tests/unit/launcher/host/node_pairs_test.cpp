#include "launcher/host/node_pairs.h"

#include <variant>

#include "launcher/options/options.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("the job in which nodes test each other runs no check of the site") {
    PairsOrder order;
    order.node_count = 2;
    order.endpoint = "n0:29400";
    const auto parsed = parse_options(pairs_job_words(order), {});
    REQUIRE(std::holds_alternative<Launch>(parsed));
    const auto& config = std::get<Launch>(parsed).config;
    CHECK(config.health_dir.empty());
    CHECK(config.preflight == Preflight::off);
}
