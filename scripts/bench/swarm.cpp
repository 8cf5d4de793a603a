// How long a daemon needs to seal a large round: N agents, each a real connection of this process, say Hello and Join;
// the clock runs from the last join's write to the last assignment's arrival. See tests/integration/net/CMakeLists.txt.
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
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
    std::string header;    // of the frame that is being read
    std::size_t skip = 0;  // bytes of its payload still to come
    bool assigned = false;
    bool told_peers = false;
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

std::string opening_words(std::uint32_t index, std::uint32_t count) {
    native::Hello hello;
    hello.job = "swarm" + std::to_string(count) + "-" + std::to_string(::getpid());
    hello.node = {.host = "node" + std::to_string(index), .pid = 1, .incarnation = index + 1};
    hello.versions = {{.component = "muster", .version = "bench"}};
    native::Join join;
    join.terms = {.nodes_min = count, .nodes_max = count};
    join.slots = 8;
    join.addresses = {"10.0." + std::to_string(index / 250) + "." + std::to_string(index % 250)};
    join.store_port = 29500;
    join.peer_port = 29500;
    std::string bytes;
    native::append_frame(bytes, hello);
    native::append_frame(bytes, join);
    return bytes;
}

char type_of(const native::Message& message) {
    std::string bytes;
    native::append_frame(bytes, message);
    return bytes[1];
}

// Only headers are looked at: this one process stands for thousands of hosts, each of which would decode on its own.
void take(Agent& agent, std::string_view bytes) {
    static const char assigned = type_of(native::Assigned{});
    static const char peers = type_of(native::Peers{});
    static const char refused = type_of(native::Refused{});
    while (!bytes.empty()) {
        const std::size_t skipped = std::min(agent.skip, bytes.size());
        agent.skip -= skipped;
        bytes.remove_prefix(skipped);
        const std::size_t missing = std::min(native::frame_header_bytes - agent.header.size(), bytes.size());
        agent.header += bytes.substr(0, missing);
        bytes.remove_prefix(missing);
        if (agent.header.size() < native::frame_header_bytes) return;
        std::uint32_t length = 0;
        std::memcpy(&length, agent.header.data() + 2, sizeof length);
        agent.skip = length;
        agent.assigned = agent.assigned || agent.header[1] == assigned;
        agent.told_peers = agent.told_peers || agent.header[1] == peers;
        if (agent.header[1] == refused) fail("a join was refused");
        agent.header.clear();
    }
}

struct Timing {
    double connect_ms = 0;
    double assigned_ms = 0;
    double peers_ms = 0;
};

Timing run(std::uint16_t port, std::uint32_t count) {
    std::vector<Agent> agents(count);
    const int epoll_fd = ::epoll_create1(EPOLL_CLOEXEC);
    Timing timing;
    const auto start = Clock::now();
    for (std::uint32_t i = 0; i < count; ++i) {
        agents[i].fd = connect_to(port);
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u32 = i;
        if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, agents[i].fd, &event) != 0) fail("epoll_ctl");
    }
    timing.connect_ms = milliseconds(Clock::now() - start);
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::string bytes = opening_words(i, count);
        if (::send(agents[i].fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
            fail("send");
    }
    const auto joined = Clock::now();
    std::uint32_t assigned = 0;
    std::uint32_t told = 0;
    std::array<epoll_event, 256> events;
    std::vector<char> buffer(1 << 20);
    while (assigned < count || told < count) {
        if (Clock::now() - joined > give_up_after) fail(std::to_string(assigned) + " were assigned in time");
        const int ready = ::epoll_wait(epoll_fd, events.data(), static_cast<int>(events.size()), 1000);
        for (int i = 0; i < ready; ++i) {
            Agent& agent = agents[events[static_cast<std::size_t>(i)].data.u32];
            const auto size = ::recv(agent.fd, buffer.data(), buffer.size(), 0);
            if (size <= 0) fail("the daemon closed a connection");
            const bool was_assigned = agent.assigned;
            const bool was_told = agent.told_peers;
            take(agent, {buffer.data(), static_cast<std::size_t>(size)});
            assigned += !was_assigned && agent.assigned;
            told += !was_told && agent.told_peers;
            if (assigned == count && timing.assigned_ms == 0) timing.assigned_ms = milliseconds(Clock::now() - joined);
        }
    }
    timing.peers_ms = milliseconds(Clock::now() - joined);
    for (const Agent& agent : agents) ::close(agent.fd);
    ::close(epoll_fd);
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
    std::printf("%8s %12s %22s %12s %16s\n", "agents", "connect ms", "last join->assigned ms", "us/agent",
                "peers known ms");
    for (int i = 2; i < argc; ++i) {
        const auto count = static_cast<std::uint32_t>(std::atoi(argv[i]));
        const Timing timing = run(static_cast<std::uint16_t>(std::atoi(argv[1])), count);
        std::printf("%8u %12.1f %22.1f %12.1f %16.1f\n", count, timing.connect_ms, timing.assigned_ms,
                    timing.assigned_ms * 1000 / count, timing.peers_ms);
        std::printf("{\"agents\": %u, \"connect_ms\": %.1f, \"assigned_ms\": %.1f, \"peers_ms\": %.1f}\n", count,
                    timing.connect_ms, timing.assigned_ms, timing.peers_ms);
        std::fflush(stdout);
    }
    return 0;
}
