#include "muster/section.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>

#include "agent/channel/agent_channel.h"
#include "rendezvous/base/time.h"
#include "tests/support/catch.h"

using namespace muster;

namespace {

/// The agent's end, where the variable says. One for the program, as the worker's end is one for a process.
struct Agent {
    Agent() {
        auto opened = agent::AgentChannel::open(loop, 0, {}, {});
        REQUIRE(opened.has_value());
        channel = std::move(*opened);
        REQUIRE(::setenv("MUSTER_AGENT_SOCKET", channel->address().c_str(), 1) == 0);
    }
    template <class Condition>
    bool hears(const Condition& condition) {
        const auto until = std::chrono::steady_clock::now() + 10s;
        while (!condition(channel->facts()) && std::chrono::steady_clock::now() < until) loop.run_one_for(100ms);
        return condition(channel->facts());
    }
    bool hears_section(const std::string& name) {
        return hears([&](const agent::WorkerFacts& facts) { return facts.section == name; });
    }
    boost::asio::io_context loop;
    std::unique_ptr<agent::AgentChannel> channel;
};

}  // namespace

TEST_CASE("heartbeats and sections reach the agent without a context, the innermost section counts") {
    Agent agent;
    heartbeat();
    CHECK(agent.hears([](const agent::WorkerFacts& facts) { return facts.heartbeats == 1; }));
    {
        const Section outer("evaluation", 90s);
        REQUIRE(agent.hears_section("evaluation"));
        CHECK(agent.channel->facts().section_limit == 90s);
        {
            const Section inner("checkpoint");
            REQUIRE(agent.hears_section("checkpoint"));
            CHECK(agent.channel->facts().section_limit == 0s);
        }
        CHECK(agent.hears_section("evaluation"));
        CHECK(agent.channel->facts().section_limit == 90s);
    }
    CHECK(agent.hears_section(""));
    // Not the one that was entered last ends first: two threads.
    {
        auto first = std::make_unique<Section>("first");
        const Section second("second");
        REQUIRE(agent.hears_section("second"));
        first.reset();
        const Section third("third");
        CHECK(agent.hears_section("third"));
    }
    CHECK(agent.hears_section(""));
    // A forked child is silent: what it says would be taken for its parent's.
    const auto child = ::fork();
    if (child == 0) {
        const Section section("child");
        heartbeat();
        ::_exit(0);
    }
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    agent.loop.poll();  // what it had said would be in the queue by now
    CHECK(agent.channel->facts().section.empty());
    const Section last("last");
    CHECK(agent.hears_section("last"));
    CHECK(agent.channel->facts().heartbeats == 1);
    // Many heartbeats are few datagrams.
    for (int i = 0; i < 100000; ++i) heartbeat();
    const Section end("end");
    CHECK(agent.hears_section("end"));
    CHECK(agent.channel->facts().heartbeats < 100);
}
