// A framework's groups and a Context in one process: the agent keeps one flight record of a worker.
#include <unistd.h>

#include <cstdint>
#include <string>

#include "tests/support/catch.h"
#include "worker_runtime/context/context_body.h"
#include "worker_runtime/context/met_group.h"
#include "worker_runtime/core/flight_record.h"

using namespace muster;

namespace {

/// The names of the groups in the record that the context gives to the agent.
std::string groups_in_record_of(const runtime::ContextBody& body) {
    std::string bytes(runtime::flight_ring_bytes, '\0');
    REQUIRE(::pread(body.flight->descriptor().get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
    const auto ring = runtime::read_flight_ring(bytes).value();
    std::string names;
    for (std::uint32_t i = 0; i < ring.header.group_count; ++i) {
        names += ring.header.groups[i];
        names += ' ';
    }
    return names;
}

}  // namespace

TEST_CASE("a context writes to the flight record of the groups that are there before it, and to its own without them") {
    auto group = runtime::MetGroups::of_process().open({.name = "torch/0", .place = nullptr});
    REQUIRE(group.has_value());
    {
        runtime::ContextBody body;
        REQUIRE(body.open().has_value());
        CHECK(groups_in_record_of(body).ends_with("torch/0 world "));
    }
    group->reset();
    runtime::ContextBody body;
    REQUIRE(body.open().has_value());
    CHECK(groups_in_record_of(body) == "world ");
}
