#include "agent/diagnosis/torch_trace.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using muster::cat;
using namespace muster::agent;

namespace {

/// As torch 2.13 writes it for gloo, shortened: its state is "scheduled" for ever.
std::string gloo_entry(int number, const char* name, bool retired) {
    return cat(R"({"record_id":)", number - 1, R"(,"process_group":["0","default_pg"],"collective_seq_id":)", number,
               R"(,"is_p2p":false,"p2p_seq_id":0,"profiling_name":")", name, R"(","state":"scheduled","retired":)",
               retired ? "true" : "false", "}");
}

std::string told(const std::string& entries) {
    const auto operation = torch_operation(cat(R"({"version":"2.10","entries":[)", entries, "]}"));
    if (!operation) return "nothing";
    return cat(operation->inside ? "inside " : "after ", operation->name);
}

}  // namespace

TEST_CASE("a dump of torch's flight recorder says in which operation its rank is, or after which") {
    const auto first = gloo_entry(7, "gloo:broadcast", true), second = gloo_entry(8, "gloo:all_reduce", false);
    CHECK(told(cat(first, ",", second)) == "inside gloo:all_reduce 8 of default_pg");
    CHECK(told(cat(second, ",", first)) == "inside gloo:all_reduce 8 of default_pg");
    CHECK(told(first) == "after gloo:broadcast 7 of default_pg");
    CHECK(told(cat(first, ",", gloo_entry(6, "gloo:barrier", true))) == "after gloo:broadcast 7 of default_pg");
    CHECK(told(R"({"record_id":0,"process_group":["3",""],"profiling_name":"nccl:barrier","state":"completed"})") ==
          "after nccl:barrier of 3");
    CHECK(told(R"({"record_id":0,"is_p2p":true,"p2p_seq_id":4,"collective_seq_id":9,"profiling_name":"gloo:recv"})") ==
          "inside gloo:recv 4");
}

TEST_CASE("of several operations under way the oldest is told: the others wait for it") {
    const auto over = gloo_entry(9, "gloo:all_reduce", true);  // of another group, say
    const auto old = gloo_entry(4, "gloo:all_reduce", false), young = gloo_entry(5, "gloo:broadcast", false);
    for (const auto& dump : {cat(old, ",", young, ",", over), cat(over, ",", young, ",", old)})
        CHECK(told(dump) == "inside gloo:all_reduce 4 of default_pg");
}

TEST_CASE("of muster's and torch's record of one rank the one that says where it stands is told") {
    using muster::Duration;
    using muster::Instant;
    constexpr Duration clocks = std::chrono::seconds(1000);
    const auto tells = [](bool torch_inside, int torch_at, bool own_inside, int own_at) {
        OperationSample own;
        own.inside = own_inside;
        own.newest_at = Instant(std::chrono::seconds(own_at));
        const auto created_ns = Duration(std::chrono::seconds(torch_at)).count();
        return tells_place({torch_inside, "gloo:all_reduce 8", created_ns}, own, clocks);
    };
    CHECK(tells(true, 1001, false, 5));
    CHECK_FALSE(tells(true, 1009, true, 5));
    CHECK_FALSE(tells(false, 1009, true, 5));
    CHECK(tells(false, 1006, false, 5));
    CHECK_FALSE(tells(false, 1004, false, 5));
    CHECK(tells_place({}, std::nullopt, clocks));
    CHECK(torch_operation(R"({"entries":[{"time_created_ns":7}]})")->created_ns == 7);
}

TEST_CASE("what is no such dump is told by nothing") {
    for (const auto* const text :
         {"", "null", "[]", "{", "{}", R"({"entries":3})", R"({"entries":[]})", R"({"entries":[1]})"})
        CHECK_FALSE(torch_operation(text));
    CHECK(told(R"({"process_group":[1,[]],"profiling_name":5,"state":{},"retired":"yes","is_p2p":1})") ==
          "inside an operation without a name");
    CHECK(told(R"({"collective_seq_id":18446744073709551615,"profiling_name":"x"})") == "inside x");
    const std::string longer(5000, 'x');
    CHECK(told(cat(R"({"profiling_name":")", longer, R"("})")).size() < 200);
}
