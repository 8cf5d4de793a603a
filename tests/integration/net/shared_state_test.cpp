// A daemon whose state is shared with others: it serves agents while it leads, and sends them on while it does not.
#include <atomic>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/servers/daemon.h"
#include "rendezvous/state/state_store.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/integration/net/plain_socket.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace muster {
namespace {

/// Leads when the test says so, and keeps at once.
class ScriptedState final : public StateStore {
  public:
    void write(std::uint64_t sequence, std::vector<Record> records) override {
        record_count += records.size();
        if (keeps) persisted(sequence);
    }
    [[nodiscard]] bool starts_as_follower() const override { return true; }
    [[nodiscard]] bool may_speak() const override { return speaks; }

    bool keeps = true;
    bool speaks = true;
    std::atomic<std::size_t> record_count = 0;  // read by the test's thread
};

struct SharedDaemon {
    explicit SharedDaemon(JobKeys keys = {}, NetLimits limits = {}) {
        DaemonConfig config;
        config.limits = limits;
        config.listen = {.address = "127.0.0.1", .ports = {0, 0}};
        config.server.keep_records = true;
        config.keys = std::move(keys);
        config.on_leading = [this] { told += "leads;"; };
        config.on_standing_by = [this](const std::string& leader) { told += "stands by, " + leader + ";"; };
        auto store = std::make_unique<ScriptedState>();
        state = store.get();
        daemon = *Daemon::open(loop, std::move(config), std::move(store));
        REQUIRE(loop.start_thread().has_value());
    }
    void lead() {
        loop.invoke([this] { state->leads({}); });
    }
    void stand_by(const std::string& leader) {
        loop.invoke([this, &leader] { state->stands_by(leader); });
    }

    std::string told;
    ScriptedState* state = nullptr;
    EventLoop loop;
    std::unique_ptr<Daemon> daemon;
};

/// One agent's connection.
class Agent {
  public:
    explicit Agent(const SharedDaemon& shared, std::string challenge = {})
        : socket_("127.0.0.1", shared.daemon->port()) {
        REQUIRE(socket_.connected());
        native::Hello hello;
        hello.job = "job";
        hello.node = {"n1", 7, 42};
        hello.challenge = std::move(challenge);
        say(hello);
    }
    void say(const native::Message& message) const {
        std::string bytes;
        native::append_frame(bytes, message);
        socket_.send(bytes);
    }
    void join() const {
        native::Join join;
        join.terms = {.nodes_min = 1, .nodes_max = 1, .last_call_ms = 1, .lease_ms = 5000, .lost_timeout_ms = 60000};
        join.slots = 1;
        join.role = "default";
        join.addresses = {"127.0.0.1"};
        join.store_port = join.peer_port = 1;
        say(join);
    }
    /// The next message, or nothing where the connection ends.
    std::optional<native::Message> hear() {
        for (;;) {
            auto message = reader_.next();
            REQUIRE(message.has_value());
            if (*message) return std::move(**message);
            const auto byte = socket_.receive(1);
            if (byte.empty()) return std::nullopt;
            reader_.append(byte);
        }
    }
    template <class Wanted>
    bool hears() {
        while (const auto message = hear())
            if (std::holds_alternative<Wanted>(*message)) return true;
        return false;
    }

  private:
    PlainSocket socket_;
    native::FrameReader reader_{native::Sender::daemon};
};

bool tells(const SharedDaemon& shared, std::string_view line) {
    PlainSocket socket("127.0.0.1", shared.daemon->port());
    REQUIRE(socket.connected());
    socket.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    std::string page;
    for (auto bytes = socket.receive(1); !bytes.empty(); bytes = socket.receive(1)) page += bytes;
    INFO(page);
    CHECK(page.find("muster_loop_turn_seconds_count") != page.npos);
    return page.find(cat("\n", line, "\n")) != page.npos;
}

}  // namespace

TEST_CASE("who does not lead sends agents to the one that does, and tells its owner") {
    SharedDaemon shared;
    shared.stand_by("other:29400");
    Agent agent(shared);
    const auto answer = agent.hear();
    REQUIRE(answer);
    CHECK(std::get<native::NotLeader>(*answer).leader == "other:29400");
    CHECK_FALSE(agent.hear());
    CHECK(shared.told == "stands by, other:29400;");
    CHECK(shared.daemon->status_json().find("\"standby\":true") != std::string::npos);
    CHECK(tells(shared, "muster_leader 0"));
    CHECK(tells(shared, "muster_leader_changes_total 0"));
}

TEST_CASE("who does not lead denies no job of the one that does") {
    SharedDaemon shared;
    const auto answer = [&] {
        PlainSocket viewer("127.0.0.1", shared.daemon->port());
        REQUIRE(viewer.send("GET /api/v1/jobs/job/agents HTTP/1.0\r\n\r\n"));
        bool closed = false;
        return viewer.receive_all(closed);
    };
    shared.stand_by("other:29400");
    CHECK(answer().starts_with("HTTP/1.1 503"));
    shared.lead();
    CHECK(answer().starts_with("HTTP/1.1 404"));
    {
        Agent agent(shared);
        agent.join();
        CHECK(agent.hears<native::Assigned>());
        CHECK(answer().starts_with("HTTP/1.1 200"));
        CHECK(answer().find("\"nodes\":[{") != std::string::npos);
        CHECK(answer().find("over") == std::string::npos);
    }
}

TEST_CASE("who cannot lead for want of room for its state says why on each page and to each agent, until it leads") {
    SharedDaemon shared;
    const auto page = [&](const char* path) {
        const PlainSocket viewer("127.0.0.1", shared.daemon->port());
        REQUIRE(viewer.send(cat("GET ", path, " HTTP/1.0\r\n\r\n")));
        bool closed = false;
        return viewer.receive_all(closed);
    };
    const auto fails = [&] { shared.loop.invoke([&] { shared.state->failing("the disk is full"); }); };
    const auto answer = [&] { return Agent(shared).hear(); };
    fails();
    CHECK(answer() == native::Message(native::StateStalled{"the disk is full", false}));
    CHECK(page("/healthz").starts_with("HTTP/1.1 503"));
    CHECK(page("/healthz").find("the state cannot be written: the disk is full") != std::string::npos);
    CHECK(page("/status").find("\"why\":\"the disk is full\"") != std::string::npos);
    CHECK(page("/status").find("\"standby\":true") != std::string::npos);
    shared.stand_by("other:29400");
    CHECK(answer() == native::Message(native::NotLeader{"other:29400"}));
    CHECK(page("/healthz").starts_with("HTTP/1.1 200"));
    fails();
    shared.lead();
    CHECK(page("/healthz").starts_with("HTTP/1.1 200"));
    Agent agent(shared);
    agent.join();
    CHECK(agent.hears<native::Assigned>());
}

TEST_CASE("a connection from before the reign is served in it, and turned away at its end") {
    SharedDaemon shared;
    shared.stand_by("");
    Agent early(shared);
    CHECK(early.hears<native::NotLeader>());
    shared.lead();
    Agent agent(shared);
    agent.join();
    CHECK(agent.hears<native::Assigned>());
    CHECK(shared.state->record_count > 0);
    CHECK(tells(shared, "muster_leader 1"));
    CHECK_FALSE(tells(shared, "muster_state_write_seconds_count 0"));
    shared.stand_by("");  // as EtcdCore does before the next leader is known
    shared.stand_by("other:1");
    CHECK(agent.hears<native::NotLeader>());
    CHECK_FALSE(agent.hear());
    // It leads once more and knows what it is given: nothing.
    shared.lead();
    CHECK(shared.daemon->status_json().find("\"jobs\":[]") != std::string::npos);
    CHECK(tells(shared, "muster_leader_changes_total 2"));
    CHECK(shared.told == "stands by, ;leads;stands by, ;stands by, other:1;leads;");
}

TEST_CASE("what a leader decided and could not keep before its reign was over is said by nobody") {
    SharedDaemon shared;
    shared.lead();
    shared.loop.invoke([&] { shared.state->keeps = false; });
    Agent agent(shared);
    agent.join();
    while (shared.daemon->status_json().find("\"n1\"") == std::string::npos) std::this_thread::yield();
    shared.stand_by("other:1");
    const auto only = agent.hear();
    REQUIRE(only);
    CHECK(std::holds_alternative<native::NotLeader>(*only));
    CHECK_FALSE(agent.hear());
}

TEST_CASE("a leader whose lease is over says nothing, not even to a ping") {
    SharedDaemon shared;
    shared.lead();
    shared.loop.invoke([&] { shared.state->speaks = false; });
    Agent agent(shared);
    agent.say(native::Ping{1, 1});
    CHECK_FALSE(agent.hear());
}

TEST_CASE("each reign asks for the secret with nonces of its own") {
    SharedDaemon shared(job_keys({.text = "secret", .origin = {}}));
    std::vector<std::string> nonces;
    for (int reign = 0; reign < 3; ++reign) {
        shared.lead();
        Agent agent(shared, std::string(32, 'c'));
        const auto answer = agent.hear();
        REQUIRE(answer);
        nonces.push_back(std::get<native::Challenge>(*answer).nonce);
        shared.stand_by("");
    }
    CHECK(nonces[0] != nonces[1]);
    CHECK(nonces[1] != nonces[2]);
    CHECK(nonces[0] != nonces[2]);
}

TEST_CASE("steps that wait for the state weigh on the memory, and beyond their limit only pings are served") {
    NetLimits limits;
    limits.unpersisted_bytes_max = 500;
    SharedDaemon shared({}, limits);
    shared.lead();
    shared.loop.invoke([&] { shared.state->keeps = false; });
    Agent agent(shared);
    agent.join();
    for (int i = 0; i < 2; ++i) {
        agent.say(native::Ping{});
        const auto answer = agent.hear();
        REQUIRE(answer.has_value());
        CHECK(std::holds_alternative<native::Pong>(*answer));
    }
    const PlainSocket reader("127.0.0.1", shared.daemon->port());
    reader.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    bool closed = false;
    const auto page = reader.receive_all(closed);
    const auto at = page.find("\nmuster_memory_bytes ");
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(page.substr(at + 21)) >= 500);
    agent.say(native::Leave{"it has enough"});
    CHECK_FALSE(agent.hear().has_value());
}

}  // namespace muster
