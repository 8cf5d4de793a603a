// Puts load on a c10d store over loopback and says what it took, as one line of JSON. Raw bytes and one epoll loop, so
// that every server gets exactly the same load; scripts/bench/store runs it.
//
//   store_load PORT SERVER_PID rate SET|GET|ADD CONNECTIONS DEPTH SECONDS
//   store_load PORT SERVER_PID large COUNT           SETs of 1 MiB in writes of 4 KiB
//   store_load PORT SERVER_PID waiters CONNECTIONS KEYS   released by one MULTI_SET, parked again, closed at once
//   store_load PORT SERVER_PID get SECONDS           our client's get()
//   store_load PORT SERVER_PID crowd CLIENTS         all connect, wait for one key, read it, and leave
//   (store_crowd.cpp)
//
// SET has no answer, so each is followed by a PING, whose echo is waited for; the pair counts as one request. CPU is
// that of all of the server's threads (schedstat, ns).
//
// What is measured is the server, so the load takes as little time of it as it can. Where it has a core of its own it
// does not sleep for answers: to be woken costs the server, which has to do it, and more time than the answer took. It
// writes its pieces of 4 KiB many in one system call. And the 1,000 ends lie ready when the server finds them: it is
// stopped (SIGSTOP) while the load closes its sockets, which takes as long as the server needs to see that.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "rendezvous/store_client/store_client.h"
#include "scripts/bench/store_load.h"

using namespace muster;
using namespace muster::bench;

namespace {

class Socket {
  public:
    explicit Socket(const Server& server) : descriptor_(connect_to(server.port)) {
        send(handshake());
        receive(4);
    }
    Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Socket& operator=(Socket&&) = delete;
    ~Socket() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }

    void send(std::string_view bytes) const {
        while (!bytes.empty()) {
            const auto sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) fail("the server closed a connection");
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    /// The same in messages of `piece_bytes`.
    void send_in_pieces(std::string_view bytes, std::size_t piece_bytes) const {
        std::array<mmsghdr, 64> messages{};
        std::array<iovec, 64> parts{};
        while (!bytes.empty()) {
            unsigned int count = 0;
            for (; count < messages.size() && !bytes.empty(); ++count) {
                const auto piece = bytes.substr(0, piece_bytes);
                bytes.remove_prefix(piece.size());
                parts[count] = {.iov_base = const_cast<char*>(piece.data()), .iov_len = piece.size()};
                messages[count].msg_hdr.msg_iov = &parts[count];
                messages[count].msg_hdr.msg_iovlen = 1;
            }
            if (::sendmmsg(descriptor_, messages.data(), count, MSG_NOSIGNAL) != static_cast<int>(count))
                fail("the server closed a connection");
        }
    }
    void receive(std::size_t size) const {
        std::string buffer(size, '\0');
        if (::recv(descriptor_, buffer.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size)) fail("short answer");
    }
    [[nodiscard]] int descriptor() const { return descriptor_; }

  private:
    int descriptor_;
};

std::vector<Socket> open_many(const Server& server, std::size_t count) {
    std::vector<Socket> sockets;
    for (std::size_t i = 0; i < count; ++i) sockets.emplace_back(server);
    return sockets;
}

struct Load {
    std::string request;
    std::size_t reply_bytes;
};

Load load_of(std::string_view operation, const Server& server) {
    Request request;
    request.key = "/bench/key";
    if (operation == "SET") return {set_of(request.key, "value-of-16-byte") + ping(), 4};
    if (operation == "GET") {
        Socket(server).send(set_of(request.key, "value-of-16-byte") + ping());
        request.operation = Operation::get;
        return {encoded(request), 8 + 16};
    }
    request.operation = Operation::add;
    request.key = "/bench/number";
    request.number = 1;
    return {encoded(request), 8};
}

// Each connection sends `depth` requests in one write and the next ones when all are answered.
void rate(const Server& server, std::string_view operation, std::size_t connections, std::size_t depth,
          double seconds) {
    const Load load = load_of(operation, server);
    std::string burst;
    for (std::size_t i = 0; i < depth; ++i) burst += load.request;
    const std::size_t burst_reply_bytes = load.reply_bytes * depth;
    const auto sockets = open_many(server, connections);
    std::vector<std::size_t> missing(connections, burst_reply_bytes);
    const int poller = ::epoll_create1(EPOLL_CLOEXEC);
    for (std::size_t i = 0; i < connections; ++i) {
        epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
        ::epoll_ctl(poller, EPOLL_CTL_ADD, sockets[i].descriptor(), &event);
    }
    std::vector<epoll_event> events(256);
    std::string buffer(1 << 20, '\0');
    const double cpu = server.cpu();
    const auto start = steady_clock::now();
    for (const auto& socket : sockets) socket.send(burst);
    std::size_t bursts = 0;
    while (seconds_since(start) < seconds) {
        const int count = ::epoll_wait(poller, events.data(), static_cast<int>(events.size()), patience_ms());
        for (int i = 0; i < count; ++i) {
            const auto index = events[static_cast<std::size_t>(i)].data.u64;
            const auto received = ::recv(sockets[index].descriptor(), buffer.data(), buffer.size(), 0);
            if (received <= 0) fail("the server closed a connection");
            missing[index] -= static_cast<std::size_t>(received);
            if (missing[index] > 0) continue;
            ++bursts;
            missing[index] = burst_reply_bytes;
            sockets[index].send(burst);
        }
    }
    const double wall = seconds_since(start);
    const double used = server.cpu() - cpu;
    const auto requests = static_cast<double>(bursts * depth);
    std::printf("{\"per_s\": %.0f, \"cpu_us\": %.3f}\n", requests / wall, used * 1e6 / requests);
    ::close(poller);
}

void large(const Server& server, std::size_t count) {
    const std::string request = set_of("/bench/large", std::string(1 << 20, 'L'));
    const Socket socket(server);
    const double cpu = server.cpu();
    const auto start = steady_clock::now();
    for (std::size_t i = 0; i < count; ++i) {
        socket.send_in_pieces(request, 4096);
        socket.send(ping());
        socket.receive(4);
    }
    const double wall = seconds_since(start);
    std::printf("{\"ms\": %.3f, \"cpu_ms\": %.3f}\n", wall * 1e3 / static_cast<double>(count),
                (server.cpu() - cpu) * 1e3 / static_cast<double>(count));
}

std::vector<std::string> keys_of(std::string_view prefix, std::size_t count) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) keys.push_back(cat(prefix, '/', i));
    return keys;
}

void park(const std::vector<Socket>& sockets, const std::vector<std::string>& keys) {
    Request wait;
    wait.operation = Operation::wait;
    wait.keys.assign(keys.begin(), keys.end());
    const std::string bytes = encoded(wait) + ping();
    for (const auto& socket : sockets) socket.send(bytes);
    for (const auto& socket : sockets) socket.receive(4);  // parked: the PING behind the WAIT is answered
}

/// Tells when each of many sockets has something to read.
class Watch {
  public:
    explicit Watch(const std::vector<Socket>& sockets)
        : poller_(::epoll_create1(EPOLL_CLOEXEC)), events_(sockets.size()) {
        for (const auto& socket : sockets) {
            epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {}};
            ::epoll_ctl(poller_, EPOLL_CTL_ADD, socket.descriptor(), &event);
        }
    }
    Watch& operator=(Watch&&) = delete;
    ~Watch() { ::close(poller_); }

    void await_all() {
        for (std::size_t ready = 0; ready < events_.size();) {
            const int count = ::epoll_wait(poller_, events_.data(), static_cast<int>(events_.size()), patience_ms());
            if (count > 0) ready += static_cast<std::size_t>(count);
        }
    }

  private:
    int poller_;
    std::vector<epoll_event> events_;
};

void waiters(const Server& server, std::size_t connections, std::size_t key_count) {
    auto sockets = open_many(server, connections);
    const Socket setter(server);
    const auto keys = keys_of(cat("/bench/wait/", ::getpid()), key_count);
    park(sockets, keys);
    Request release_all;
    release_all.operation = Operation::multi_set;
    release_all.keys.assign(keys.begin(), keys.end());
    release_all.values.assign(keys.size(), "v");
    const std::string releasing = encoded(release_all);
    Watch answers(sockets);
    double cpu = server.cpu();
    auto start = steady_clock::now();
    setter.send(releasing);
    answers.await_all();
    const double release = seconds_since(start);
    const double release_cpu = server.cpu() - cpu;
    for (const auto& socket : sockets) socket.receive(1);

    park(sockets, keys_of(cat("/bench/again/", ::getpid()), key_count));
    const std::size_t open = server.descriptor_count();
    ::kill(server.pid, SIGSTOP);
    sockets.clear();
    setter.send(ping());
    cpu = server.cpu();
    start = steady_clock::now();
    ::kill(server.pid, SIGCONT);
    setter.receive(4);  // the next client is served
    const double leave = seconds_since(start);
    // The last of the work may be done behind that answer.
    while (server.descriptor_count() > open - connections && seconds_since(start) < 60) ::usleep(200);
    std::printf("{\"release_ms\": %.3f, \"release_cpu_ms\": %.3f, \"leave_ms\": %.3f, \"leave_cpu_ms\": %.3f}\n",
                release * 1e3, release_cpu * 1e3, leave * 1e3, (server.cpu() - cpu) * 1e3);
}

void get(const Server& server, double seconds) {
    auto client = rendezvous::StoreClient::connect({"127.0.0.1", server.port});
    if (!client || !client->set("bench/get", "value-of-16-byte")) fail("our client cannot connect");
    std::size_t count = 0;
    const auto start = steady_clock::now();
    while (seconds_since(start) < seconds) {
        for (int i = 0; i < 100; ++i, ++count)
            if (!client->get("bench/get")) fail("get failed");
    }
    std::printf("{\"us\": %.3f}\n", seconds_since(start) * 1e6 / static_cast<double>(count));
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto number = [&](std::size_t i) { return words.size() > i ? std::atof(words[i].c_str()) : 0.0; };
    const auto count = [&](std::size_t i) { return static_cast<std::size_t>(number(i)); };
    if (words.size() < 4) fail("usage: store_load PORT SERVER_PID rate|large|waiters|get|crowd ...");
    const Server server{static_cast<std::uint16_t>(number(0)), static_cast<pid_t>(number(1))};
    if (words[2] == "rate") rate(server, words[3], count(4), count(5), number(6));
    if (words[2] == "large") large(server, count(3));
    if (words[2] == "waiters") waiters(server, count(3), std::max<std::size_t>(1, count(4)));
    if (words[2] == "get") get(server, number(3));
    if (words[2] == "crowd") crowd(server, count(3), count(4));
    return 0;
}
