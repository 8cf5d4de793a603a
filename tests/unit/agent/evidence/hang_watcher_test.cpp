#include "agent/evidence/hang_watcher.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;
using boost::asio::local::stream_protocol;

namespace {

struct IdleProcess {
    IdleProcess() : pid(test::fork_with_test()) {
        while (pid == 0) ::pause();
    }
    ~IdleProcess() {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    pid_t pid;
};

/// It waits for a child that computes, as a worker waits for its compiler.
struct WaitingProcess {
    WaitingProcess() : pid(test::fork_with_test()) {
        if (pid != 0) return;
        if (test::fork_with_test() == 0)
            for (volatile unsigned turns = 0;; turns = turns + 1) {
            }
        for (;;) ::pause();
    }
    ~WaitingProcess() {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    pid_t pid;
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
    const IdleProcess worker;
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
    const IdleProcess idle;
    const WaitingProcess waiting;
    boost::asio::io_context loop;
    HangWatcher hangs(loop, {}, {});
    hangs.ask = [](std::uint32_t) { return HangWatcher::WorkerInput{}; };
    hangs.begin_round(0);
    hangs.worker_started(0, idle.pid);
    hangs.worker_started(1, waiting.pid);
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (hangs.activities().empty() && std::chrono::steady_clock::now() < until) loop.run_for(20ms);
    // The idle one is told of after five seconds, and the other one would be as well.
    REQUIRE(hangs.activities().size() == 1);
    CHECK(hangs.activities().front().rank == 0);
}
