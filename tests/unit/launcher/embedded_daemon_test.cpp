#include "launcher/embedded_daemon.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("who hosts: what is told, else static's rank 0, else whose address the endpoint has") {
    LaunchConfig config;
    config.backend = Backend::c10d;
    const auto yes = [] { return true; };
    const auto no = [] { return false; };
    CHECK(hosting(config, yes) == Hosting::inferred);
    CHECK(hosting(config, no) == Hosting::no);
    config.is_host = false;
    CHECK(hosting(config, yes) == Hosting::no);
    config.is_host = true;
    CHECK(hosting(config, no) == Hosting::told);
    config.is_host.reset();
    config.standalone = true;
    CHECK(hosting(config, no) == Hosting::told);
    config.standalone = false;
    config.backend = Backend::fixed;
    config.node_rank = 0;
    CHECK(hosting(config, no) == Hosting::inferred);
    config.node_rank = 1;
    CHECK(hosting(config, yes) == Hosting::no);
}
