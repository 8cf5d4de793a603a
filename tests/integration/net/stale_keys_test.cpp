// A key of round k is never read in round k + 1 (pytorch#135712): a thousand rounds with each kind of store. The port
// stays the same, as --store-port and the static back end have it, and each round's workers ask for the same key.
#include <array>

#include "rendezvous/servers/round_store.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/integration/net/running_daemon.h"
#include "tests/support/quiet_port.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

constexpr int round_count = 1000;
const std::string no_value = c10d_bytes::text("");

/// A worker that asks for the key, sets it, and stays; `found` is what was there.
struct KeyWorker {
    KeyWorker(std::uint16_t port, int round) : socket("127.0.0.1", port) {
        const auto value = "of round " + std::to_string(round);
        socket.send(c10d_bytes::validate + c10d_bytes::get("/k") + c10d_bytes::set("/k", value) +
                    c10d_bytes::get("/k"));
        found = socket.receive(no_value.size());
        if (found == no_value) kept = socket.receive(no_value.size() + value.size()) == c10d_bytes::text(value);
    }
    PlainSocket socket;
    std::string found;
    bool kept = false;
};

/// Each round's worker outlives its round, and then can neither read in the next one nor write for it.
class KeyWorkers {
  public:
    void begin_round(std::uint16_t port, int round) {
        auto worker = std::make_unique<KeyWorker>(port, round);
        REQUIRE(worker->found == no_value);
        REQUIRE(worker->kept);
        if (last_) {
            last_->socket.send(c10d_bytes::get("/k"));
            REQUIRE(last_->socket.closed_by_peer());
        }
        last_ = std::move(worker);
    }

  private:
    std::unique_ptr<KeyWorker> last_;
};

/// The only agent of a fixed world, whose worker fails in each round.
class FailingAgent {
  public:
    explicit FailingAgent(const RunningDaemon& daemon) : socket_(daemon.connect()) {
        native::Hello hello;
        hello.job = "job";
        hello.node = {.host = "here", .pid = 1, .incarnation = 7};
        native::append_frame(words_, hello);
    }
    void join(Round last_round) {
        native::Join join;
        join.terms = {.restarts_max = round_count, .fixed_world = true};
        join.last_round = last_round;
        join.node_rank = 0;
        join.addresses = {"127.0.0.1"};
        join.store_port = 1;
        say(join);
    }
    void fail(Round round) {
        native::WorkersFailed failed{round, {}};
        auto& failure = failed.failures.emplace_back();
        failure.host = "here";
        failure.end = Exited{1};
        say(failed);
        say(native::RoundReport{.round = round, .failures = failed.failures});
    }
    /// False: it has not come within the socket's patience.
    bool assigned(Round round) {
        for (;;) {
            auto message = reader_.next();
            REQUIRE(message.has_value());
            if (!*message) {
                std::array<char, 4096> piece;
                const auto got = ::recv(socket_.fd(), piece.data(), piece.size(), 0);
                if (got <= 0) return false;
                reader_.append({piece.data(), static_cast<std::size_t>(got)});
            } else if (const auto* told = std::get_if<native::Assigned>(&**message)) {
                return told->round == round;
            }
        }
    }

  private:
    void say(const native::Message& message) {
        native::append_frame(words_, message);
        socket_.send(words_);
        words_.clear();
    }
    PlainSocket socket_;
    native::FrameReader reader_{native::Sender::daemon};
    std::string words_;
};

}  // namespace

TEST_CASE("in a thousand rounds with a store each, on one port, no key of the round before is read") {
    EventLoop loop;
    loop.start_thread();
    RoundStoreConfig config;
    const QuietPort held;
    const auto port = held.number();
    config.listen.ports = {port, port};
    KeyWorkers workers;
    for (int round = 0; round < round_count; ++round) {
        auto store = RoundStore::open(loop, config);
        REQUIRE(store.has_value());
        workers.begin_round(port, round);
    }
}

TEST_CASE("in a thousand rounds of a fixed world, whose store is the daemon's, no key of the round before is read") {
    const RunningDaemon daemon;
    FailingAgent agent(daemon);
    KeyWorkers workers;
    for (int round = 0; round < round_count; ++round) {
        agent.join(round == 0 ? no_round : round - 1);
        REQUIRE(agent.assigned(round));
        workers.begin_round(daemon.port(), round);
        agent.fail(round);
    }
}
