// How long a daemon needs for large rounds: N agents, each a real connection of this process.
//
//   join     they say Hello and Join; from the last join's write to the last assignment's arrival
//   lost     a guardian says that its node is gone; from its word until all others are in the next round
//   failed   one agent's worker failed; the same
//
// After a round's end every agent reports and joins again as soon as it hears of it: stopping workers takes no time
// here. An assignment that gives a rank twice, or leaves one out, ends the program. See
// tests/integration/net/CMakeLists.txt.
//
//   swarm PORT N [N ...]      one job for each N, against 127.0.0.1:PORT; prints a table and one line of JSON for each
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/wire/native/codec.h"

namespace {

using namespace muster;
using Clock = std::chrono::steady_clock;

constexpr auto give_up_after = std::chrono::seconds(60);

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "swarm: %s: %s\n", what.c_str(), std::strerror(errno));
    std::exit(1);
}

double milliseconds(Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

struct Agent {
    int fd = -1;
    std::string frame;     // header, and of an assignment the payload too
    std::size_t skip = 0;  // bytes of another payload still to come
};

int connect_to(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket (raise ulimit -n)");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("connect");
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

class Swarm {
  public:
    Swarm(std::uint16_t port, std::uint32_t count) : port_(port), count_(count), agents_(count), alive_(count) {}
    ~Swarm() {
        for (const Agent& agent : agents_)
            if (agent.fd >= 0) ::close(agent.fd);
        ::close(epoll_fd_);
    }

    void connect();
    void join();
    void lose_one();
    void fail_one();
    /// Answers the daemon until every agent knows its place and its peers in the round; the time since `from` until the
    /// last assignment, in ms.
    double settle(Round round, Clock::time_point from);

  private:
    native::Hello hello(std::uint32_t index) const;
    native::Join join_words(std::uint32_t index, Round last_round) const;
    static void say(int fd, const std::string& bytes) {
        if (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) fail("send");
    }
    void take(std::uint32_t index, std::string_view bytes);
    void hear(std::uint32_t index, char type);
    void note_place(const std::string& frame);

    std::uint16_t port_;
    std::uint32_t count_;  // at the beginning
    std::string job_ = "swarm" + std::to_string(count_) + "-" + std::to_string(::getpid());
    int epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
    std::vector<Agent> agents_;
    std::vector<char> buffer_ = std::vector<char>(1 << 20);
    std::uint32_t alive_;
    Round round_ = no_round;   // that is awaited
    std::vector<char> ranks_;  // of it; 1: given
    std::uint32_t assigned_ = 0;
    std::uint32_t told_ = 0;
};

native::Hello Swarm::hello(std::uint32_t index) const {
    native::Hello hello;
    hello.job = job_;
    hello.node = {.host = "node" + std::to_string(index), .pid = 1, .incarnation = index + 1};
    hello.versions = {{.component = "muster", .version = "bench"}};
    return hello;
}

native::Join Swarm::join_words(std::uint32_t index, Round last_round) const {
    native::Join join;
    // Nobody pings here: the lease is longer than any of this takes.
    join.terms = {.nodes_min = count_ - 1, .nodes_max = count_, .restarts_max = 1, .lease_ms = 60'000};
    join.terms.lost_timeout_ms = 2 * join.terms.lease_ms;
    join.last_round = last_round;
    join.slots = 8;
    join.addresses = {"10.0." + std::to_string(index / 250) + "." + std::to_string(index % 250)};
    join.store_port = 29500;
    join.peer_port = 29500;
    return join;
}

void Swarm::connect() {
    for (std::uint32_t i = 0; i < count_; ++i) {
        agents_[i].fd = connect_to(port_);
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u32 = i;
        if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, agents_[i].fd, &event) != 0) fail("epoll_ctl");
    }
}

void Swarm::join() {
    for (std::uint32_t i = 0; i < count_; ++i) {
        std::string bytes;
        native::append_frame(bytes, hello(i));
        native::append_frame(bytes, join_words(i, no_round));
        say(agents_[i].fd, bytes);
    }
}

void Swarm::lose_one() {
    const std::uint32_t index = count_ / 2;
    ::close(std::exchange(agents_[index].fd, -1));
    --alive_;
    const int guardian = connect_to(port_);
    std::string bytes;
    native::append_frame(bytes, hello(index));
    native::append_frame(bytes, native::AgentDied{"killed by signal 9"});
    say(guardian, bytes);
    ::close(guardian);
}

void Swarm::fail_one() {
    native::WorkersFailed failed{round_, {}};
    auto& failure = failed.failures.emplace_back();
    failure.host = "node0";
    failure.rank = 0;
    failure.end = Exited{1};
    std::string bytes;
    native::append_frame(bytes, failed);
    say(agents_[0].fd, bytes);
}

double Swarm::settle(Round round, Clock::time_point from) {
    round_ = round;
    ranks_.assign(alive_, 0);
    assigned_ = told_ = 0;
    double assigned_ms = 0;
    std::array<epoll_event, 256> events;
    while (assigned_ < alive_ || told_ < alive_) {
        if (Clock::now() - from > give_up_after)
            fail("round " + std::to_string(round) + ": " + std::to_string(assigned_) + " were assigned in time");
        const int ready = ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), 1000);
        for (int i = 0; i < ready; ++i) {
            const auto index = events[static_cast<std::size_t>(i)].data.u32;
            const auto size = ::recv(agents_[index].fd, buffer_.data(), buffer_.size(), 0);
            if (size <= 0) fail("the daemon closed a connection");
            take(index, {buffer_.data(), static_cast<std::size_t>(size)});
            if (assigned_ == alive_ && assigned_ms == 0) assigned_ms = milliseconds(Clock::now() - from);
        }
    }
    return assigned_ms;
}

char type_of(const native::Message& message) {
    std::string bytes;
    native::append_frame(bytes, message);
    return bytes[1];
}

const char assigned_type = type_of(native::Assigned{});
const char peers_type = type_of(native::Peers{});
const char ended_type = type_of(native::RoundEnded{});
const char refused_type = type_of(native::Refused{});

// Only headers and assignments are looked at: this one process stands for thousands of hosts, each of which would
// decode the list of all peers on its own.
void Swarm::take(std::uint32_t index, std::string_view bytes) {
    Agent& agent = agents_[index];
    const auto move_to_frame = [&](std::size_t size) {
        const auto missing = std::min(size - agent.frame.size(), bytes.size());
        agent.frame += bytes.substr(0, missing);
        bytes.remove_prefix(missing);
        return agent.frame.size() == size;
    };
    while (!bytes.empty()) {
        const std::size_t skipped = std::min(agent.skip, bytes.size());
        agent.skip -= skipped;
        bytes.remove_prefix(skipped);
        if (agent.frame.size() < native::frame_header_bytes && !move_to_frame(native::frame_header_bytes)) return;
        std::uint32_t length = 0;
        std::memcpy(&length, agent.frame.data() + 2, sizeof length);
        const char type = agent.frame[1];
        if (type == assigned_type) {
            if (!move_to_frame(native::frame_header_bytes + length)) return;
            note_place(agent.frame);
        } else {
            agent.skip = length;
            hear(index, type);
        }
        agent.frame.clear();
    }
}

void Swarm::hear(std::uint32_t index, char type) {
    if (type == refused_type) fail("a join was refused");
    if (type == peers_type) ++told_;
    if (type != ended_type) return;
    std::string bytes;
    native::append_frame(bytes, native::RoundReport{.round = round_ - 1, .failures = {}, .stopped_count = 8});
    native::append_frame(bytes, join_words(index, round_ - 1));
    say(agents_[index].fd, bytes);
}

void Swarm::note_place(const std::string& frame) {
    native::FrameReader reader(native::Sender::daemon);
    reader.append(frame);
    const auto message = reader.next();
    if (!message || !*message) fail("an assignment cannot be read");
    const auto& told = std::get<native::Assigned>(**message);
    if (told.round != round_) fail("an assignment of round " + std::to_string(told.round));
    if (told.group_world_size != alive_ || told.group_rank >= alive_ || ranks_[told.group_rank] != 0)
        fail("group rank " + std::to_string(told.group_rank) + " of " + std::to_string(told.group_world_size));
    ranks_[told.group_rank] = 1;
    ++assigned_;
}

struct Timing {
    double connect_ms = 0;
    double assigned_ms = 0;
    double peers_ms = 0;
    double lost_ms = 0;
    double failed_ms = 0;
};

Timing run(std::uint16_t port, std::uint32_t count) {
    Swarm swarm(port, count);
    Timing timing;
    const auto start = Clock::now();
    swarm.connect();
    timing.connect_ms = milliseconds(Clock::now() - start);
    swarm.join();
    const auto joined = Clock::now();
    timing.assigned_ms = swarm.settle(0, joined);
    timing.peers_ms = milliseconds(Clock::now() - joined);
    const auto lost = Clock::now();
    swarm.lose_one();
    timing.lost_ms = swarm.settle(1, lost);
    const auto failed = Clock::now();
    swarm.fail_one();
    timing.failed_ms = swarm.settle(2, failed);
    return timing;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: swarm PORT N [N ...]\n");
        return 2;
    }
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::printf("%8s %12s %22s %12s %16s %18s %22s\n", "agents", "connect ms", "last join->assigned ms", "us/agent",
                "peers known ms", "lost->assigned ms", "failed->assigned ms");
    for (int i = 2; i < argc; ++i) {
        const auto count = static_cast<std::uint32_t>(std::atoi(argv[i]));
        if (count < 2) {
            std::fprintf(stderr, "swarm: %s agents: at least 2 are needed, one of them to be lost\n", argv[i]);
            return 2;
        }
        const Timing timing = run(static_cast<std::uint16_t>(std::atoi(argv[1])), count);
        std::printf("%8u %12.1f %22.1f %12.1f %16.1f %18.1f %22.1f\n", count, timing.connect_ms, timing.assigned_ms,
                    timing.assigned_ms * 1000 / count, timing.peers_ms, timing.lost_ms, timing.failed_ms);
        std::printf(
            "{\"agents\": %u, \"connect_ms\": %.1f, \"assigned_ms\": %.1f, \"peers_ms\": %.1f, \"lost_ms\": %.1f, "
            "\"failed_ms\": %.1f}\n",
            count, timing.connect_ms, timing.assigned_ms, timing.peers_ms, timing.lost_ms, timing.failed_ms);
        std::fflush(stdout);
    }
    return 0;
}
