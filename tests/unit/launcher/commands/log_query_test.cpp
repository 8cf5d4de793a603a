#include "launcher/commands/log_query.h"

#include <iterator>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("an agent reads what a viewer asks") {
    LogRequest request;
    CHECK(log_target(request) == "/logs");
    request.job = "t &";
    request.ranks = {0, 1, 2, 7, 31, 32};
    request.out = false;
    request.round = 3;
    request.since = 90s;
    request.follow = true;
    request.resume = {{"attempt_0/0/stdout.log", 17}, {"attempt_0/1/stdout.log", 0}, {"no plain name", 1}};
    const auto target = log_target(request);
    CHECK(target ==
          "/logs?job=t%20%26&ranks=0-2,7,31-32&stream=err&round=3&follow=1&since=90&from=attempt_0/0/stdout.log:17,"
          "attempt_0/1/stdout.log:0");
    const auto read = read_log_target(target);
    REQUIRE(read);
    CHECK(log_target(*read) == target);
    CHECK(read->job == request.job);
    CHECK(read->ranks == request.ranks);
    CHECK(read->since == request.since);
    CHECK(read->resume.size() == 2);
    CHECK(read_log_target("/logs"));
    LogRequest end;
    end.last = 200;
    CHECK(log_target(end) == "/logs?last=200");
    CHECK(read_log_target(log_target(end))->last == 200);
    end.include.emplace_back("loss");  // Which lines these are, only the viewer knows.
    CHECK(log_target(end) == "/logs");
}

TEST_CASE("a viewer of too many files asks by age for what it lacks") {
    LogRequest request;
    request.follow = true;
    request.unread = 40s;
    for (int file = 0; file < 500; ++file) request.resume[cat("attempt_", file, "/0/stdout.log")] = 1'000'000;
    CHECK(log_target(request) == "/logs?follow=1&untimed=1&since=40");
    CHECK_FALSE(has_positions(log_target(request)));
    request.since = 10s;
    CHECK(log_target(request) == "/logs?follow=1&since=10");
    request.resume.erase(std::next(request.resume.begin(), 10), request.resume.end());
    CHECK(log_target(request).starts_with("/logs?follow=1&since=10&from=attempt_0/"));
    CHECK(has_positions(log_target(request)));
}

TEST_CASE("an agent refuses a target of which it does not know all") {
    for (const std::string target : {"/",
                                     "/log",
                                     "/logs/x",
                                     "/logs?",
                                     "/logs?x=1",
                                     "/logs?job=",
                                     "/logs?job=%4",
                                     "/logs?ranks=",
                                     "/logs?ranks=3-1",
                                     "/logs?ranks=1-",
                                     "/logs?ranks=-1",
                                     "/logs?ranks=0-1000001",
                                     "/logs?ranks=0-100000",
                                     "/logs?ranks=0-60000,0-60000",
                                     "/logs?stream=both",
                                     "/logs?round=",
                                     "/logs?round=-1",
                                     "/logs?since=-1",
                                     "/logs?since=1h",
                                     "/logs?since=99999999999",
                                     "/logs?follow=0",
                                     "/logs?ranks=1&&round=1",
                                     "/logs?from=a",
                                     "/logs?from=:1",
                                     "/logs?from=a:1,",
                                     "/logs?from=a:x",
                                     "/logs?ranks"}) {
        CAPTURE(target);
        CHECK_FALSE(read_log_target(target));
    }
}
