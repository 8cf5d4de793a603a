#include "launcher/commands/job_logs.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("the nodes of a job are read with those that wait, also where an earlier daemon does not name these") {
    const auto job = read_job_agents(R"({"round":3,"waiting":1,"waiting_nodes":["8"],"nodes":
        [{"incarnation":"7","host":"gpu07","pid":4711,"address":"10.0.0.7","port":29500}]})");
    REQUIRE(job.has_value());
    CHECK(job->round == 3);
    CHECK(job->waiting_nodes == std::set<std::string>{"8"});
    REQUIRE(job->agents.size() == 1);
    CHECK(job->agents.front().name == "gpu07 (pid 4711)");
    const auto earlier = read_job_agents(R"({"waiting":1,"nodes":[]})");
    REQUIRE(earlier.has_value());
    CHECK(earlier->waiting == 1);
    CHECK(earlier->waiting_nodes.empty());
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
    logs.meet({.round = {}, .waiting = 2, .waiting_nodes = {"0"}, .agents = {}});  // it does not name all that wait
    CHECK(logs.cut_off_count() == JobLogs::nodes_max);
    logs.meet({.round = {}, .waiting = 1, .waiting_nodes = {"0"}, .agents = {}});
    CHECK(logs.cut_off_count() == 1);
}

TEST_CASE("a node whose agent does not know how to send the last lines is read all the same") {
    using boost::asio::ip::tcp;
    boost::asio::io_context io;
    tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    std::vector<std::string> asked;
    const std::jthread agent([&] {
        for (int i = 0; i < 2; ++i) {
            tcp::socket socket(io);
            acceptor.accept(socket);
            std::string question;
            boost::asio::read_until(socket, boost::asio::dynamic_buffer(question), "\r\n\r\n");
            asked.push_back(question.substr(0, question.find("\r\n")));
            std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\nThis agent does not know all of these options.\n";
            if (question.find("last=") == std::string::npos) {
                answer = cat("HTTP/1.1 200 OK\r\n\r\n", agent::to_wire(agent::LogClock{1}));
                const agent::LogLine line{.text = "hello", .owner = std::make_shared<const agent::LogOwner>()};
                agent::LineWriter().append(answer, 0, "0/stdout.log", line);
                answer += agent::to_wire(agent::LogEnd{});
            }
            boost::asio::write(socket, boost::asio::buffer(answer));
        }
    });
    LogRequest request;
    request.last = 200;
    std::string shown, troubles;
    JobLogs logs(request, {std::nullopt}, [&](const std::string& trouble) { troubles += trouble; });
    const auto take = [&](std::string_view lines) {
        shown += lines;
        return true;
    };
    logs.meet({.round = 0,
               .agents = {{.incarnation = "1",
                           .host = "h",
                           .name = "h",
                           .place = {"127.0.0.1", acceptor.local_endpoint().port()}}}});
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (logs.open_count() > 0 && std::chrono::steady_clock::now() < deadline) logs.read(take, 100ms);
    logs.finish(take);
    CHECK(troubles.empty());
    CHECK(shown == "[0]: hello\n");
    CHECK(asked == std::vector<std::string>{"GET /logs?last=200 HTTP/1.0", "GET /logs HTTP/1.0"});
}
