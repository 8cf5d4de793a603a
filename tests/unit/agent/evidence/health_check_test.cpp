#include "agent/evidence/health_check.h"

#include <sys/stat.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

TEST_CASE("the usual folder is looked for before each join") {
    using State = HealthVerdict::State;
    muster::test::ScratchFolder place;
    const auto folder = place / "health.d";
    boost::asio::io_context loop;
    HealthCheck check(loop, {.command = {}, .folder = folder, .folder_is_usual = true, .limit = 60s, .job = "job"});
    std::optional<HealthVerdict> verdict;
    const auto run = [&] {
        verdict.reset();
        check.run(std::nullopt, [&](HealthVerdict found) { verdict = std::move(found); });
    };
    run();
    // At once: nothing was started to read it.
    REQUIRE(verdict);
    CHECK(verdict->state == State::healthy);
    std::filesystem::create_directory(folder);
    ::chmod(folder.c_str(), 0777);
    run();
    CHECK_FALSE(verdict);
    loop.run();
    // A folder that all can change is refused. Where muster-check is not found, nothing is known either.
    REQUIRE(verdict);
    CHECK(verdict->state == State::unknown);
    std::filesystem::remove(folder);
    run();
    REQUIRE(verdict);
    CHECK(verdict->state == State::healthy);
}
