#include "agent/process/side_runs.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "agent/process/side_process.h"
#include "agent/supervision/worker_environment.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

std::string program(const test::ScratchFolder& folder, const std::string& body) {
    const auto path = folder / "stacks";
    std::ofstream(path) << "#!/bin/sh\n" << body << '\n';
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
}

}  // namespace

TEST_CASE("what the program says of a process arrives when it ends") {
    const test::ScratchFolder folder;
    boost::asio::io_context loop;
    SideRuns runs(loop);
    const auto path = program(folder, "echo thread $1 x");
    std::vector<std::string> told;
    runs.start({path, "42"}, 60s, [&](std::string text) { told.push_back(std::move(text)); });
    runs.start({path, "43"}, 60s, [&](std::string text) { told.push_back(std::move(text)); });
    CHECK(told.empty());
    loop.run_for(60s);
    std::sort(told.begin(), told.end());
    CHECK(told == std::vector<std::string>{"thread 42 x\n", "thread 43 x\n"});
}

TEST_CASE("a program that is started when another one has just ended is waited for") {
    boost::asio::io_context loop;
    SideRuns runs(loop);
    constexpr int pairs = 300;
    int whole = 0, ended = 0;
    for (int i = 0; i < pairs; ++i) {
        runs.start({"/bin/true"}, 60s, [&](const std::string&) {
            runs.start({"/bin/sh", "-c", "sleep 0.01; echo whole"}, 60s, [&](const std::string& text) {
                ++ended;
                whole += text == "whole\n" ? 1 : 0;
            });
        });
        const auto before = ended;
        while (ended == before) loop.run_one();
        loop.restart();
    }
    CHECK(whole == pairs);
}

TEST_CASE("a program reads what it is given from stdin, and then its end") {
    boost::asio::io_context loop;
    SideRuns runs(loop);
    std::vector<std::string> told;
    const std::string most(side_input_bytes_max, 'x');
    runs.start(
        {"cat"}, 60s, [&](std::string text) { told.push_back(std::move(text)); }, most);
    loop.run_for(60s);
    loop.restart();
    runs.start({"cat"}, 60s, [&](std::string text) { told.push_back(std::move(text)); });
    loop.run_for(60s);
    loop.restart();
    runs.start(
        {"cat"}, 60s, [&](std::string text) { told.push_back(std::move(text)); }, most + 'y');
    loop.run_for(60s);
    REQUIRE(told.size() == 3);
    CHECK(told[0] == most);
    CHECK(told[1].empty());
    CHECK(told[2] == "note the input of cat has 4097 bytes\n");
}

TEST_CASE("a program has this process's environment, without the variables that are the agent's alone") {
    ::setenv("MUSTER_TEST_OF_SIDE_RUNS", "there", 1);
    for (const char* own : agents_own_variables) ::setenv(own, "of the agent", 1);
    boost::asio::io_context loop;
    SideRuns runs(loop);
    std::string told;
    runs.start({"env"}, 60s, [&](std::string text) { told = std::move(text); });
    loop.run_for(60s);
    for (const char* own : agents_own_variables) ::unsetenv(own);
    CHECK(told.find("MUSTER_TEST_OF_SIDE_RUNS=there\n") != std::string::npos);
    CHECK(told.find("of the agent") == std::string::npos);
}

TEST_CASE("no use of the terminal in whose background it runs stops a program") {
    boost::asio::io_context loop;
    SideRuns runs(loop);
    std::string told;
    runs.start({"grep", "SigBlk", "/proc/self/status"}, 60s, [&](std::string text) { told = std::move(text); });
    loop.run_for(60s);
    CHECK(told == "SigBlk:\t0000000000300000\n");  // SIGTTIN and SIGTTOU
}

TEST_CASE("of one that does not end the beginning counts, and it is killed") {
    const test::ScratchFolder folder;
    const auto pid_file = folder / "pid";
    boost::asio::io_context loop;
    SideRuns runs(loop);
    const auto path = program(folder, cat("echo $$ > ", pid_file, "; echo thread 1 x; exec sleep 1000"));
    std::string told;
    // Longer where a busy host did not begin the program.
    for (Duration limit = 1s; told.empty() && limit < 1min; limit *= 4) {
        const auto begun = std::chrono::steady_clock::now();
        runs.start({path}, limit, [&](std::string text) { told = std::move(text); });
        loop.restart();
        loop.run_for(60s);
        CHECK(std::chrono::steady_clock::now() - begun >= limit);
        CHECK(std::chrono::steady_clock::now() - begun < 55s);
    }
    CHECK(told == "thread 1 x\n");
    pid_t pid = 0;
    std::ifstream(pid_file) >> pid;
    REQUIRE(pid > 0);
    CHECK(::kill(pid, 0) != 0);  // killed, and reaped
}

TEST_CASE("whoever is dropped hears nothing, and a program that is missing is told of") {
    const test::ScratchFolder folder;
    boost::asio::io_context loop;
    {
        SideRuns runs(loop);
        runs.start({program(folder, "exec sleep 1000")}, 100s, [&](const std::string&) { FAIL("it was dropped"); });
        runs.drop_all();
        loop.run_for(60s);  // returns when the program has been reaped
        CHECK(loop.stopped());
    }
    loop.restart();
    SideRuns missing(loop);
    std::string told;
    missing.start({folder / "missing"}, 1s, [&](std::string text) { told = std::move(text); });
    loop.run_for(60s);
    CHECK(told.starts_with("note start "));
    CHECK(told.find("No such file") != std::string::npos);
    loop.restart();
    missing.start({folder / "missing"}, 1s, [&](const std::string&) { FAIL("it was dropped"); });
    missing.drop_all();
    loop.run_for(60s);
}
