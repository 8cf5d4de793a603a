// The clients of a large job at one store: they connect at once, count themselves in `init/`, wait for the id of their
// NCCL communicator, read it (C10D.md), and end at once. One epoll loop; no client waits for another one's answer.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <vector>

#include "rendezvous/wire/c10d/relay.h"
#include "scripts/bench/store_load.h"

namespace muster::bench {

namespace {

constexpr std::string_view id_key = "/default_pg/0//cuda//0";
constexpr std::size_t id_bytes = 128;
constexpr std::size_t add_reply_bytes = 8, ping_reply_bytes = 4;
constexpr double timeout_s = 240;
// Of the server, 127.0.0.2 and up. The kernel finds a free port for a connection the sooner, the fewer have the same
// address at the other end.
constexpr std::size_t addresses = 8;

std::string request_of(Operation operation, std::string_view key) {
    Request request;
    request.operation = operation;
    if (operation == Operation::wait)
        request.keys = {key};
    else
        request.key = key;
    request.number = 1;
    return encoded(request);
}

/// `count` connections, each of which awaits the same number of bytes at a time.
class Crowd {
  public:
    Crowd(const Server& server, std::size_t count)
        : server_(server), poller_(::epoll_create1(EPOLL_CLOEXEC)), missing_(count) {
        raise_open_files();
        descriptors_.reserve(count);
    }
    Crowd& operator=(Crowd&&) = delete;
    ~Crowd() {
        close_all();
        ::close(poller_);
    }

    /// Each sends `greeting` as soon as it is connected and awaits `reply_bytes`.
    void connect(std::string_view greeting, std::size_t reply_bytes) {
        greeting_ = greeting;
        std::fill(missing_.begin(), missing_.end(), reply_bytes);
        while (descriptors_.size() < missing_.size()) {
            begin_one();
            turn(0);
        }
        await_all();
    }
    /// Sends to all, and says how many bytes each will answer.
    void ask(std::string_view request, std::size_t reply_bytes) {
        expect(reply_bytes);
        for (const int fd : descriptors_) send(fd, request);
    }
    void expect(std::size_t reply_bytes) {
        std::fill(missing_.begin(), missing_.end(), reply_bytes);
        done_ = 0;
    }
    void await_all() {
        const auto start = steady_clock::now();
        while (done_ < missing_.size()) {
            turn(1000);  // a look that finds nothing would take CPU from the server where both share a core
            if (seconds_since(start) > timeout_s) fail(cat(missing_.size() - done_, " clients got no answer"));
        }
    }
    void close_all() {
        for (const int fd : descriptors_) ::close(fd);
        descriptors_.clear();
    }

  private:
    void begin_one() {
        const auto host = 1 + static_cast<std::uint32_t>(descriptors_.size() % addresses);
        const int fd = connect_to(server_.port, SOCK_NONBLOCK, host);
        epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = descriptors_.size()}};
        descriptors_.push_back(fd);
        greeted_.push_back(false);
        ::epoll_ctl(poller_, EPOLL_CTL_ADD, fd, &event);
    }
    static void send(int fd, std::string_view bytes) {
        if (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
            fail("the server closed a connection");
    }
    void turn(int timeout_ms) {
        std::array<epoll_event, 512> events;
        const int count = ::epoll_wait(poller_, events.data(), static_cast<int>(events.size()), timeout_ms);
        for (int i = 0; i < count; ++i) {
            const auto& event = events[static_cast<std::size_t>(i)];
            const auto index = event.data.u64;
            if ((event.events & EPOLLOUT) != 0 && !greeted_[index]) {
                greeted_[index] = true;
                send(descriptors_[index], greeting_);
            }
            if ((event.events & EPOLLIN) != 0) receive(index);
        }
    }
    void receive(std::size_t index) {
        std::array<char, 4096> bytes;
        const auto size = ::recv(descriptors_[index], bytes.data(), bytes.size(), 0);
        if (size < 0 && errno == EAGAIN) return;
        if (size <= 0 || static_cast<std::size_t>(size) > missing_[index]) fail("the server closed a connection");
        missing_[index] -= static_cast<std::size_t>(size);
        if (missing_[index] == 0) ++done_;
    }

    const Server& server_;
    int poller_;
    std::string greeting_;
    std::vector<int> descriptors_;
    std::vector<bool> greeted_;
    std::vector<std::size_t> missing_;
    std::size_t done_ = 0;
};

/// What one connection carries for its client, or as a relay for each of its clients.
class Traffic {
  public:
    explicit Traffic(std::size_t behind) : behind_(behind) {}
    [[nodiscard]] std::string greeting() const { return behind_ > 0 ? c10d::relay_handshake() : std::string(); }
    [[nodiscard]] std::string request(const std::string& bytes) const {
        if (behind_ == 0) return bytes;
        std::string out;
        for (std::uint32_t client = 1; client <= behind_; ++client) {
            c10d::append_relay_header(out, client, static_cast<std::uint32_t>(bytes.size()));
            out += bytes;
        }
        return out;
    }
    [[nodiscard]] std::size_t reply(std::size_t bytes) const { return behind_ > 0 ? behind_ * (8 + bytes) : bytes; }

  private:
    const std::size_t behind_;
};

/// Prints members `NAME_ms` and `NAME_cpu_ms` of the time since the last one.
class Phases {
  public:
    explicit Phases(const Server& server) : server_(server) {}
    void begin() {
        cpu_ = server_.cpu();
        start_ = steady_clock::now();
    }
    void end(const char* name) {
        const double wall = seconds_since(start_);
        const double used = server_.cpu() - cpu_;
        total_ms_ += wall * 1e3;
        std::printf("\"%s_ms\": %.3f, \"%s_cpu_ms\": %.3f, ", name, wall * 1e3, name, used * 1e3);
    }
    [[nodiscard]] double total_ms() const { return total_ms_; }

  private:
    const Server& server_;
    double cpu_ = 0;
    double total_ms_ = 0;
    Instant start_{};
};

/// Until the server has no more than `open` descriptors. A look costs as much as there are, so looks take at most a
/// tenth of the time: the server may have no other core.
void await_closed(const Server& server, std::size_t open) {
    const auto start = steady_clock::now();
    for (;;) {
        const auto look = steady_clock::now();
        if (server.descriptor_count() <= open) return;
        if (seconds_since(start) > timeout_s)
            fail("the server has not closed the connections of clients that have gone");
        ::usleep(std::max(1000U, static_cast<unsigned>(9e6 * seconds_since(look))));
    }
}

}  // namespace

void crowd(const Server& server, std::size_t count, std::size_t behind) {
    const Traffic traffic(behind);
    Crowd clients(server, behind > 0 ? count / behind : count);
    Crowd first(server, 1);
    first.connect(handshake(), ping_reply_bytes);
    const auto erase = request_of(Operation::delete_key, id_key);
    first.ask(erase, add_reply_bytes);
    first.await_all();
    const double resident = resident_bytes(cat(server.pid));
    const std::size_t open = server.descriptor_count();
    Phases phases(server);
    std::printf("{");
    phases.begin();
    clients.connect(traffic.greeting() + traffic.request(handshake() + request_of(Operation::add, "init/")),
                    traffic.reply(ping_reply_bytes + add_reply_bytes));
    phases.end("connect");
    phases.begin();
    // The answer to the PING behind it shows that the WAIT is parked.
    clients.ask(traffic.request(request_of(Operation::wait, id_key) + ping()), traffic.reply(ping_reply_bytes));
    clients.await_all();
    phases.end("park");
    const double parked = resident_bytes(cat(server.pid));
    clients.expect(traffic.reply(1));
    phases.begin();
    first.ask(set_of(id_key, std::string(id_bytes, 'n')) + ping(), ping_reply_bytes);
    clients.await_all();
    phases.end("release");
    phases.begin();
    clients.ask(traffic.request(request_of(Operation::get, id_key)), traffic.reply(sizeof(std::uint64_t) + id_bytes));
    clients.await_all();
    phases.end("get");
    const double init = phases.total_ms();
    clients.ask(traffic.request(request_of(Operation::wait, "/never") + ping()), traffic.reply(ping_reply_bytes));
    clients.await_all();
    // The ends lie ready when the server finds them (store_load.cpp).
    first.await_all();
    ::kill(server.pid, SIGSTOP);
    clients.close_all();
    first.ask(ping(), ping_reply_bytes);
    phases.begin();
    ::kill(server.pid, SIGCONT);
    first.await_all();  // the next client is served
    await_closed(server, open);
    phases.end("leave");
    std::printf("\"init_ms\": %.3f, \"client_bytes\": %.0f}\n", init, (parked - resident) / static_cast<double>(count));
}

}  // namespace muster::bench
