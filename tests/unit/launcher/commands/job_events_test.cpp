#include "launcher/commands/job_events.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("events that have other types than expected are shown as far as they go") {
    CHECK(events_text(R"({"time":5,"data":{"host":1,"text":"a"}})"
                      "\n"
                      R"({"time":"2026-11-23T18:02:11.482113Z","data":{"text":[]}})"
                      "\n"
                      R"({"data":7})"
                      "\nno\n[]\n") == "Z a\n2026-11-23T18:02:11Z \n");
    const auto odd = [](const std::string&) -> Result<std::string> {
        return R"({"id":5})"
               "\n";
    };
    CHECK(job_events("train", odd)->empty());
}

TEST_CASE("a node's events are found by the first part of its name, too") {
    const std::string first = R"({"data":{"host":"gpu01.example.org"}})"
                              "\n";
    const auto lines = first + R"({"data":{"host":"gpu012"}})"
                               "\n"
                               R"({"data":{"host":1}})"
                               "\n"
                               R"({"data":{}})"
                               "\n";
    CHECK(events_of_node(lines, "gpu01") == first);
    CHECK(events_of_node(lines, "gpu01.example.org") == first);
    CHECK(events_of_node(lines, "gpu0").empty());
}
