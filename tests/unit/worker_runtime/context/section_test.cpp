#include "muster/section.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <future>

#include "agent/channel/agent_channel.h"
#include "agent/channel/local_listener.h"
#include "rendezvous/base/time.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/end_with_test.h"
#include "tests/support/other_user.h"
#include "tests/support/run_until.h"
#include "worker_runtime/context/agent_link.h"
#include "worker_runtime/context/agent_snapshots.h"
#include "worker_runtime/core/step_record.h"
#include "worker_runtime/shared_memory/descriptor_datagram.h"

using namespace muster;

namespace {

/// The agent's end, where the variable says. One for the program, as the worker's end is one for a process.
struct Agent {
    Agent() {
        auto opened = agent::AgentChannel::open(loop, 0, {}, {});
        REQUIRE(opened.has_value());
        channel = std::move(*opened);
        REQUIRE(::setenv("MUSTER_AGENT_SOCKET", channel->address().c_str(), 1) == 0);
        REQUIRE(::setenv("MUSTER_AGENT_TOKEN", channel->token().c_str(), 1) == 0);
    }
    template <class Condition>
    bool hears(const Condition& condition) {
        return test::run_until(loop, [&] { return condition(channel->facts()); });
    }
    bool hears_section(const std::string& name) {
        return hears([&](const agent::WorkerFacts& facts) { return facts.section == name; });
    }
    boost::asio::io_context loop;
    ClosingPtr<agent::AgentChannel> channel;
};

}  // namespace

TEST_CASE("heartbeats, steps and sections reach the agent without a context, the innermost section counts") {
    Agent agent;
    heartbeat();
    CHECK(agent.hears([](const agent::WorkerFacts& facts) { return facts.heartbeats == 1; }));
    progress(-1);  // no step
    const auto began = std::chrono::steady_clock::now();
    progress(7);
    progress(8);  // too soon after the last one, unless this process stood still between them
    const bool too_soon = std::chrono::steady_clock::now() - began < 50ms;
    CHECK(agent.hears(
        [&](const agent::WorkerFacts& facts) { return facts.step == 7 || (!too_soon && facts.step == 8); }));
    CHECK(agent.hears([](const agent::WorkerFacts& facts) {
        progress(9);
        return facts.step == 9;
    }));
    // The record has each step.
    runtime::StepRecord record;
    const int memory = agent.channel->step_record();
    REQUIRE(memory >= 0);
    REQUIRE(::pread(memory, &record, sizeof record, 0) == static_cast<ssize_t>(sizeof record));
    CHECK(record.first_step == 7);
    CHECK(record.last_step == 9);
    CHECK(record.step_count >= 3);
    progress(INT64_MIN + 12);  // of PyTorch's optimizer, which does not know the steps before this process
    REQUIRE(::pread(memory, &record, sizeof record, 0) == static_cast<ssize_t>(sizeof record));
    CHECK(record.first_step < 0);
    CHECK(record.last_step == 12);
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
    const auto child = test::fork_with_test();
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
    const auto many = std::chrono::steady_clock::now();
    for (int i = 0; i < 100000; ++i) heartbeat();
    const Section end("end");
    CHECK(agent.hears_section("end"));
    CHECK(std::int64_t(agent.channel->facts().heartbeats) <= 2 + (std::chrono::steady_clock::now() - many) / 100ms);
}

TEST_CASE("a worker says nothing to another user who listens at its agent's address") {
    if (!test::may_be_another_user()) return;
    const auto address = "@muster-test-" + std::to_string(::getpid());
    int listening[2];
    REQUIRE(::pipe2(listening, O_CLOEXEC) == 0);
    const test::Child stranger{test::fork_with_test()};
    if (stranger.pid == 0) {
        ::close(listening[0]);
        constexpr uid_t nobody = 65534;
        if (::setresuid(nobody, nobody, nobody) != 0) ::_exit(1);
        test::end_with_test();
        const auto listener = agent::listen_locally(address.substr(1), "a worker");
        (void)!::write(listening[1], listener ? "y" : "n", 1);
        for (;;) ::pause();
    }
    char answer = 'n';
    CHECK(::read(listening[0], &answer, 1) == 1);
    CHECK(answer == 'y');
    const auto reached = runtime::AgentLink::reach(address);
    REQUIRE(reached.has_error());
    CHECK(reached.error().code == Errc::refused);
    CHECK(reached.error().context.find("another user's (uid 65534)") != std::string::npos);
    for (const int end : listening) ::close(end);
}

TEST_CASE("connections of others in front of the agent's address do not keep its worker out") {
    boost::asio::io_context loop;
    const auto channel = agent::AgentChannel::open(loop, 0, {}, {});
    REQUIRE(channel.has_value());
    // The agent takes none of them out meanwhile.
    std::vector<FileDescriptor> others;
    for (int i = 0; i < 100; ++i) {
        auto other = runtime::AgentLink::reach((*channel)->address());
        if (other) others.push_back(std::move(*other));
    }
    CHECK(others.size() == 100);
}

TEST_CASE("a snapshot waits for an agent whose queue is full: not for ever, not twice, and not beyond the round") {
    Agent agent;
    auto watch = runtime::FdWatch::start();
    REQUIRE(watch.has_value());
    auto link = runtime::AgentLink::connect(agent.channel->address(), agent.channel->token(), std::move(*watch),
                                            [](const auto&, const auto&) {});
    REQUIRE(link.has_value());
    const auto groups = std::make_shared<runtime::RoundGroups>();
    runtime::AgentSnapshots patient(0, groups, 120s), hasty(0, groups);
    patient.connect(**link);
    hasty.connect(**link);
    const FileDescriptor memory(::memfd_create("snapshot", MFD_CLOEXEC));
    const auto give = [&](auto& snapshots, std::int64_t step) { return snapshots.give(memory, 7, step, "/ckpt"); };
    constexpr std::uint64_t most = 1 << 20;
    std::uint64_t said = 0;
    while (said < most && (*link)->send(local::Heartbeat{})) ++said;
    REQUIRE(said < most);
    SECTION("one that reads again gets it") {
        auto given = std::async(std::launch::async, [&] { return give(patient, 1); });
        CHECK(agent.hears([](const agent::WorkerFacts& facts) { return facts.snapshot_step == 1; }));
        CHECK(given.get());
    }
    SECTION("for a copy of another rank's it is waited for, too") {
        const auto began = std::chrono::steady_clock::now();
        CHECK_FALSE(hasty.give_copy(memory, 7, 1, 3));
        CHECK(std::chrono::steady_clock::now() - began >= 2s);
        CHECK(agent.hears([&](const agent::WorkerFacts& facts) { return facts.heartbeats == said; }));
        CHECK(hasty.give_copy(memory, 7, 2, 3));
        CHECK(agent.hears([](const agent::WorkerFacts& facts) { return facts.copy_step == 2; }));
    }
    SECTION("one that does not is waited for once, until it takes one") {
        const auto began = std::chrono::steady_clock::now();
        CHECK_FALSE(give(hasty, 1));
        const auto first = std::chrono::steady_clock::now() - began;
        CHECK(first >= 2s);
        for (int i = 0; i < 30; ++i) CHECK_FALSE(give(hasty, 2));
        CHECK(std::chrono::steady_clock::now() - began - first < 30s);
        CHECK(agent.hears([&](const agent::WorkerFacts& facts) { return facts.heartbeats == said; }));
        CHECK(give(hasty, 3));
        CHECK(agent.hears([](const agent::WorkerFacts& facts) { return facts.snapshot_step == 3; }));
    }
    SECTION("the link that is taken away ends it") {
        auto given = std::async(std::launch::async, [&] { return give(patient, 1); });
        CHECK(given.wait_for(200ms) == std::future_status::timeout);  // it waits
        patient.disconnect();
        CHECK(given.wait_for(60s) == std::future_status::ready);
        CHECK_FALSE(given.get());
    }
}

TEST_CASE("a send ends at its deadline where too many descriptors of its user are under way") {
    if (!test::may_be_another_user()) return;
    const test::Child sender{test::fork_with_test()};
    if (sender.pid == 0) {
        ::alarm(30);
        const uid_t own_user = 60000 + ::getpid() % 5000;  // no other test's: the descriptors of a user count together
        const rlimit few{.rlim_cur = 64, .rlim_max = 64};
        int ends[2];
        if (::setresuid(own_user, own_user, own_user) != 0 || ::setrlimit(RLIMIT_NOFILE, &few) != 0 ||
            ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) != 0)
            ::_exit(1);
        int failed = 0;
        while (failed == 0) failed = send_datagram(ends[0], "x", {ends, 1});
        const auto soon = std::chrono::steady_clock::now() + 50ms;
        const auto sent = runtime::send_datagram_before(soon, ends[0], "x", {ends, 1});
        ::_exit(failed == ETOOMANYREFS && sent.has_error() && sent.error().code == Errc::timed_out ? 0 : 2);
    }
    int status = -1;
    REQUIRE(::waitpid(sender.pid, &status, 0) == sender.pid);
    CHECK(status == 0);
}
