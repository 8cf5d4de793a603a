#include "launcher/commands/job_logs.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("the nodes of a job are read with those that wait") {
    const auto job = read_job_agents(R"({"round":3,"waiting_nodes":["8"],"nodes":
        [{"incarnation":"7","host":"gpu07","pid":4711,"address":"10.0.0.7","port":29500}]})");
    REQUIRE(job.has_value());
    CHECK(job->round == 3);
    CHECK(job->waiting_nodes == std::set<std::string>{"8"});
    REQUIRE(job->agents.size() == 1);
    CHECK(job->agents.front().name == "gpu07 (pid 4711)");
    for (const char* wrong : {"", "{}", R"({"nodes":[7]})", R"({"nodes":[],"waiting_nodes":7})"})
        CHECK_FALSE(read_job_agents(wrong).has_value());
}

TEST_CASE("nodes that are gone are forgotten, and those that wait for a round are not") {
    LogRequest request;
    request.follow = true;
    JobLogs logs(request, {std::nullopt}, [](const std::string&) {});
    JobAgents job;
    // Nobody listens at this port.
    for (std::size_t number = 0; number <= 2 * JobLogs::nodes_max; ++number)
        job.agents.push_back(
            {.incarnation = std::to_string(number), .host = "h", .name = "h", .place = {"127.0.0.1", 1}});
    const auto end_all = [&] {
        const auto deadline = std::chrono::steady_clock::now() + 120s;
        while (logs.open_count() > 0 && std::chrono::steady_clock::now() < deadline)
            logs.read([](std::string_view) { return true; }, 100ms);
        return logs.open_count() == 0;
    };
    logs.meet(job);
    REQUIRE(end_all());
    REQUIRE(logs.cut_off_count() == JobLogs::nodes_max);
    logs.meet({.round = {}, .waiting_nodes = {"0"}, .agents = {}});
    CHECK(logs.cut_off_count() == 1);
}

TEST_CASE("a read waits its turn also while no node is connected") {
    LogRequest request;
    request.follow = true;
    JobLogs logs(request, {std::nullopt}, [](const std::string&) {});
    logs.meet({.round = {}, .waiting_nodes = {"0"}, .agents = {}});
    for (int turn = 0; turn < 2; ++turn) {
        const auto began = std::chrono::steady_clock::now();
        CHECK(logs.read([](std::string_view) { return true; }, 50ms));
        CHECK(std::chrono::steady_clock::now() - began >= 50ms);
    }
}
