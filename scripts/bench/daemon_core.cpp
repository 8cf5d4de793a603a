// One job of N agents at the daemon's real core (rendezvous/rounds), without a network: the agents' messages come as
// frames, and what the core decides is encoded again. The agents are played by this program. Only the daemon's part is
// measured, in processor time and in the memory that it holds. A daemon's sockets come on top.
//
//   daemon_core N LEASE [static]        LEASE in seconds; static: the world is fixed, and each agent names its rank
//
// Prints one line of JSON:
//   join_us      of one agent's Hello and Join, on average
//   seal_ms      the last Join until all assignments and places are encoded
//   seal_bytes   of these
//   lost_ms      a node's death until all others' news of it are encoded
//   again_ms     of all reports and joins after it, with the next seal
//   ping_us      of one heartbeat, its answer, and its share of what the job does meanwhile, over four leases
//   pace_s       of the heartbeats, as the daemon tells it
//   memory_mib   held by the core
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

#include "rendezvous/rounds/server.h"
#include "rendezvous/wire/native/codec.h"
#include "scripts/bench/loopback.h"

namespace {

using namespace muster;
using namespace muster::bench;
using namespace muster::rendezvous;

double cpu_s() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double held_mib() {
    const auto heap = ::mallinfo2();
    return static_cast<double>(heap.uordblks + heap.hblkhd) / (1 << 20);
}

class DaemonCore {
  public:
    DaemonCore(std::uint32_t count, Duration lease, bool is_static) : count_(count), server_(config_of(count), now_) {
        terms_.nodes_min = terms_.nodes_max = count;
        terms_.restarts_max = 1;
        terms_.fixed_world = is_static;
        terms_.lease_ms = static_cast<std::uint32_t>(lease / 1ms);
    }

    /// Of a new agent; the number of its connection is its index and 1.
    void arrive(std::uint32_t index) {
        measure([&] { carry_out(server_.step(ConnectionAccepted{index + 1, address_of(index)}, now_)); });
        native::Hello hello = hello_of(index);
        hello.connection = 1;
        say(index + 1, hello);
        say(index + 1, join_of(index, no_round));
    }
    void say(ConnectionId connection, const native::Message& message) {
        std::string frame;
        native::append_frame(frame, message);
        measure([&] {
            native::FrameReader reader(native::Sender::agent);
            reader.append(frame);
            auto decoded = reader.next();
            if (!decoded || !*decoded) fail("an agent's message cannot be read");
            carry_out(server_.step(Received{connection, **std::move(decoded)}, now_));
        });
    }
    /// A guardian's word on a connection of its own.
    void die(std::uint32_t index) {
        const ConnectionId connection = 2 * count_ + index + 1;
        measure([&] { carry_out(server_.step(ConnectionAccepted{connection, address_of(index)}, now_)); });
        say(connection, hello_of(index));
        say(connection, native::AgentDied{"killed"});
    }
    /// Time passes; what falls due happens.
    void advance(Duration length) {
        const auto end = now_ + length;
        while (server_.deadline() <= end) {
            now_ = std::max(now_, server_.deadline());
            measure([&] { carry_out(server_.step(Elapsed{}, now_)); });
        }
        now_ = end;
    }
    [[nodiscard]] native::Join join_of(std::uint32_t index, Round last) const {
        native::Join join;
        join.terms = terms_;
        join.last_round = last;
        join.slots = 8;
        if (terms_.fixed_world) join.node_rank = static_cast<std::int32_t>(std::min(index, count_ - 1));
        join.addresses = {address_of(index)};
        join.store_port = join.peer_port = 29500;
        join.entry = "train.py";
        join.arguments_hash = 1;
        return join;
    }

    double cpu = 0;           // of the daemon's part, since it was set to 0
    std::uint64_t bytes = 0;  // encoded for agents
    std::uint32_t assigned = 0, placed = 0, ended = 0, heartbeat_ms = 0;

  private:
    static ServerConfig config_of(std::uint32_t count) {
        ServerConfig config;
        config.nodes_max = count + 1;
        return config;
    }
    static std::string address_of(std::uint32_t index) {
        return "10." + std::to_string(index >> 16) + "." + std::to_string(index >> 8 & 255) + "." +
               std::to_string(index & 255);
    }
    static native::Hello hello_of(std::uint32_t index) {
        native::Hello hello;
        hello.version = native::protocol_version;
        hello.job = "large";
        hello.node = {.host = "node" + std::to_string(index), .pid = 1, .incarnation = index + 1};
        return hello;
    }
    void measure(const auto& part) {
        const auto begun = cpu_s();
        part();
        cpu += cpu_s() - begun;
    }
    void carry_out(const ServerStep& step) {
        for (const auto& action : step.actions)
            if (const auto* send = std::get_if<SendTo>(&action)) send_to(*send);
    }
    void send_to(const SendTo& send) {
        out_.clear();
        native::append_frame(out_, send.message);
        const auto receivers = send.connections.size();
        bytes += out_.size() * receivers;
        if (const auto* told = std::get_if<native::Assigned>(&send.message)) {
            assigned += static_cast<std::uint32_t>(receivers);
            heartbeat_ms = told->heartbeat_ms;
        }
        if (std::holds_alternative<native::Peers>(send.message)) placed += static_cast<std::uint32_t>(receivers);
        if (std::holds_alternative<native::RoundEnded>(send.message)) ended += static_cast<std::uint32_t>(receivers);
        if (const auto* refused = std::get_if<native::Refused>(&send.message)) fail("refused: " + refused->why);
    }

    std::uint32_t count_;
    Instant now_{1h};
    native::JobTerms terms_;
    Server server_;
    std::string out_;
};

}  // namespace

int main(int argc, char** argv) {
    const auto count = static_cast<std::uint32_t>(argc >= 3 ? std::atoi(argv[1]) : 0);
    const auto lease =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(argc >= 3 ? std::atof(argv[2]) : 0));
    if (count < 2 || lease < 1s) {
        std::fprintf(stderr, "usage: daemon_core N LEASE [static]    2 agents and 1 s or more\n");
        return 2;
    }
    const auto before_mib = held_mib();
    DaemonCore daemon(count, lease, argc == 4);
    const auto spent_ms = [&] { return std::exchange(daemon.cpu, 0) * 1e3; };
    for (std::uint32_t i = 0; i + 1 < count; ++i) daemon.arrive(i);
    const auto join_us = spent_ms() * 1e3 / (count - 1);
    daemon.bytes = 0;
    daemon.arrive(count - 1);
    if (daemon.assigned != count || daemon.placed != count) fail("not all agents were told their places");
    const auto seal_ms = spent_ms();
    const auto seal_bytes = daemon.bytes;
    const auto memory_mib = held_mib() - before_mib;

    const auto pace = Duration{1ms} * daemon.heartbeat_ms;
    std::uint64_t pings = 0;
    for (Duration passed{}; passed < 4 * lease; passed += pace)
        for (std::uint32_t i = 0; i < count; ++i, ++pings) {
            daemon.advance(pace / count);
            daemon.say(i + 1, native::Ping{pings, 1});
        }
    const auto ping_us = spent_ms() * 1e3 / static_cast<double>(pings);
    if (daemon.ended != 0) fail("the round ended");

    daemon.die(count - 1);
    if (daemon.ended != count - 1) fail("not all others heard of the loss");
    const auto lost_ms = spent_ms();
    daemon.assigned = 0;
    for (std::uint32_t i = 0; i + 1 < count; ++i) {
        native::RoundReport report;
        report.round = 0;
        daemon.say(i + 1, report);
        daemon.say(i + 1, daemon.join_of(i, 0));
    }
    daemon.arrive(count);  // a node in its place
    if (daemon.assigned != count) fail("not all agents are in the next round");
    std::printf(
        "{\"agents\": %u, \"lease_s\": %.1f, \"join_us\": %.2f, \"seal_ms\": %.1f, \"seal_bytes\": %llu, \"lost_ms\": "
        "%.1f, "
        "\"again_ms\": %.1f, \"ping_us\": %.2f, \"pace_s\": %.3f, \"memory_mib\": %.1f}\n",
        count, std::chrono::duration<double>(lease).count(), join_us, seal_ms,
        static_cast<unsigned long long>(seal_bytes), lost_ms, spent_ms(), ping_us,
        std::chrono::duration<double>(pace).count(), memory_mib);
    return 0;
}
