#include "agent/evidence/hang_watcher.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;
using boost::asio::local::stream_protocol;

namespace {

/// It waits for a child that computes, as a worker waits for its compiler.
struct WaitingChild : test::Child {
    WaitingChild() : Child(test::fork_with_test()) {
        if (pid != 0) return;
        if (test::fork_with_test() == 0)
            for (volatile unsigned turns = 0;;) turns = turns + 1;
        for (;;) ::pause();
    }
};

/// torch's server in a worker: the same dump for everybody who asks.
class DumpServer {
  public:
    DumpServer(boost::asio::io_context& loop, const std::string& path) : acceptor_(loop, path) { serve(); }
    int answered = 0;

  private:
    struct Visit {
        stream_protocol::socket socket;
        std::string request{};
    };
    void serve() {
        acceptor_.async_accept([this](boost::system::error_code failure, stream_protocol::socket socket) {
            if (failure) return;
            const auto visit = std::make_shared<Visit>(Visit{std::move(socket)});
            boost::asio::async_read_until(
                visit->socket, boost::asio::dynamic_buffer(visit->request), "\r\n\r\n",
                [this, visit](auto, std::size_t) {
                    const std::string answer =
                        "HTTP/1.1 200 OK\r\n\r\n"
                        R"({"entries":[{"record_id":4,"collective_seq_id":8,"profiling_name":"gloo:all_reduce",)"
                        R"("process_group":["0","default_pg"],"retired":true,"time_created_ns":7}]})";
                    boost::asio::write(visit->socket, boost::asio::buffer(answer));
                    ++answered;
                });
            serve();
        });
    }
    stream_protocol::acceptor acceptor_;
};

}  // namespace

TEST_CASE("what torch told of one idle time of a rank is not told of a later one") {
    const test::IdleChild worker;
    const test::ScratchFolder folder;
    boost::asio::io_context loop;
    DumpServer server(loop, folder / "torch.sock");
    HangWatcher hangs(loop, {.report_idle_after = 1s}, {});
    HangWatcher::WorkerInput told;
    told.torch_socket = folder / "torch.sock";
    told.torch_file = folder / "dump.json";
    hangs.ask = [&told](std::uint32_t) { return told; };
    hangs.begin_round(0);
    hangs.worker_started(0, worker.pid);
    const auto comes_to = [&](int answered, const std::string& operation) {
        const auto until = std::chrono::steady_clock::now() + 60s;
        for (;;) {
            const auto all = hangs.activities();
            if (server.answered >= answered && !all.empty() && all.front().operation == operation) return true;
            if (std::chrono::steady_clock::now() > until) return false;
            loop.run_for(20ms);
        }
    };
    REQUIRE(comes_to(1, "gloo:all_reduce 8 of default_pg"));
    // It goes on with an operation of muster, which is newer than all that torch knows, and is idle again.
    told.operation = OperationSample{.count = 1, .name = "all_reduce 1 of world"};
    told.operation->newest_at = std::chrono::steady_clock::now();
    CHECK(comes_to(2, "all_reduce 1 of world"));
}

TEST_CASE("a worker whose child computes is not idle") {
    const test::IdleChild idle;
    const WaitingChild waiting;
    boost::asio::io_context loop;
    HangWatcher hangs(loop, {}, {});
    hangs.ask = [](std::uint32_t) { return HangWatcher::WorkerInput{}; };
    std::vector<WorkerActivity> activities;
    // Once more where a busy host gave the child no CPU for as long as it takes to be idle.
    for (int tries = 0; tries < 5 && activities.size() != 1; ++tries) {
        hangs.begin_round(0);
        hangs.worker_started(0, idle.pid);
        hangs.worker_started(1, waiting.pid);
        const auto until = std::chrono::steady_clock::now() + 60s;
        // activities() is read right after a sample, because an older one does not show the CPU time of the child.
        activities = hangs.activities();
        for (; activities.empty() && std::chrono::steady_clock::now() < until; activities = hangs.activities())
            loop.run_one_for(60s);
    }
    // The idle one is told of after five seconds, and the other one would be as well.
    REQUIRE(activities.size() == 1);
    CHECK(activities.front().rank == 0);
}

TEST_CASE("of each rank a section that it enters is told, and that it leaves it; others only ten seconds later") {
    const test::IdleChild worker;
    boost::asio::io_context loop;
    HangWatcher hangs(loop, {}, {});
    HangWatcher::WorkerInput told;
    int asked = 0;
    hangs.ask = [&](std::uint32_t) {
        ++asked;
        return told;
    };
    std::vector<Event> events;
    hangs.on_event = [&events](const Event& event) { events.push_back(event); };
    const auto sample = [&](const char* section) {
        told.section = section;
        const auto until = std::chrono::steady_clock::now() + 60s;
        for (const auto before = asked; asked == before && std::chrono::steady_clock::now() < until;)
            loop.run_one_for(1s);
    };
    // Once more where this process stood still until the ten seconds were over.
    auto took = Duration::max();
    for (int tries = 0; tries < 5 && took >= 9s; ++tries) {
        const auto began = std::chrono::steady_clock::now();
        events.clear();
        hangs.begin_round(4);
        hangs.worker_started(1, worker.pid);
        for (const auto* section : {"evaluation", "evaluation", "export", "", "evaluation", ""}) sample(section);
        took = std::chrono::steady_clock::now() - began;
    }
    REQUIRE(events.size() == 2);
    CHECK(type_name(events[0].kind) == "muster.section.entered.v1");
    CHECK(events[0].text == "rank 5 is in section evaluation");
    CHECK(type_name(events[1].kind) == "muster.section.left.v1");
    CHECK(events[1].text == "rank 5 left section evaluation");
    CHECK(events[1].facts == EventFacts{.pid = worker.pid, .rank = 5, .local_rank = 1, .section = "evaluation"});
}

TEST_CASE("the daemon is told of the longest time in each section, and of the last step of any worker") {
    const test::IdleChild first, second;
    boost::asio::io_context loop;
    HangWatcher hangs(loop, {}, {});
    const auto now = std::chrono::steady_clock::now();
    hangs.ask = [now](std::uint32_t local_rank) {
        HangWatcher::WorkerInput told;
        told.sections = {{"checkpoint", 1 + local_rank}, {"evaluation", 9 - local_rank}};
        told.steps.last_step = 7;
        told.steps.last_at = now - (local_rank + 1) * 100s;
        return told;
    };
    std::optional<native::WorkersSeen> seen;
    hangs.on_seen = [&seen](native::WorkersSeen news) { seen = std::move(news); };
    hangs.begin_round(0);
    hangs.worker_started(0, first.pid);
    hangs.worker_started(1, second.pid);
    while (!seen && std::chrono::steady_clock::now() < now + 60s) loop.run_for(20ms);
    REQUIRE(seen);
    CHECK(seen->sections == SectionTimes{{"checkpoint", 2}, {"evaluation", 9}});
    CHECK(seen->since_step_ns >= Duration(100s).count());
    CHECK(seen->since_step_ns < Duration(200s).count());
}
