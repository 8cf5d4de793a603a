// A daemon on a free port of this process, on a thread of its own.
#pragma once

#include <unistd.h>

#include <fstream>
#include <future>
#include <string>

#include "rendezvous/secret/job_key.h"
#include "rendezvous/servers/daemon.h"
#include "tests/integration/net/plain_socket.h"
#include "tests/support/catch.h"

namespace muster {

/// What a sanitizer adds: the address sanitizer keeps freed memory, the thread sanitizer has a shadow of all of it.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::size_t sanitizer_bytes = std::size_t{256} << 20;
#elif defined(__SANITIZE_THREAD__)
inline constexpr std::size_t sanitizer_bytes = std::size_t{512} << 20;
#else
inline constexpr std::size_t sanitizer_bytes = 0;
#endif

inline const rendezvous::Secret test_secret{.text = "a secret of 16 B", .origin = {}};

inline rendezvous::DaemonConfig with_secret(const rendezvous::Secret& secret = test_secret) {
    rendezvous::DaemonConfig config;
    config.keys = rendezvous::job_keys(secret);
    config.server.secret_seed = "seed";
    return config;
}

inline std::size_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t total = 0;
    std::size_t resident = 0;
    file >> total >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Keeps a loop from turning until end(). When the constructor returns, the loop stands still.
class Standstill {
  public:
    explicit Standstill(rendezvous::EventLoop& loop) {
        loop.post([this, over = over_.get_future().share()] {
            begun_.set_value();
            over.wait();
        });
        begun_.get_future().wait();
    }
    void end() { over_.set_value(); }

  private:
    std::promise<void> begun_, over_;
};

class RunningDaemon {
  public:
    explicit RunningDaemon(rendezvous::DaemonConfig config = {}) {
        if (config.listen.ports == PortRange{29400, 29400}) config.listen.ports = {0, 0};
        auto opened = rendezvous::Daemon::open(loop_, std::move(config));
        REQUIRE(opened.has_value());
        daemon_ = std::move(*opened);
        loop_.start_thread();
    }

    [[nodiscard]] std::uint16_t port() const { return daemon_->port(); }
    [[nodiscard]] rendezvous::Daemon& daemon() { return *daemon_; }
    [[nodiscard]] rendezvous::EventLoop& loop() { return loop_; }

    [[nodiscard]] PlainSocket connect(const std::string& address = "127.0.0.1") const {
        PlainSocket socket(address, port());
        REQUIRE(socket.connected());
        return socket;
    }
    /// The body of GET `path`.
    [[nodiscard]] std::string page(const std::string& path) const {
        const auto socket = connect();
        socket.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        bool closed = false;
        const std::string answer = socket.receive_all(closed);
        REQUIRE(closed);
        return answer.substr(answer.find("\r\n\r\n") + 4);
    }
    /// A number of GET /metrics.
    [[nodiscard]] double metric(const std::string& name) const {
        const std::string text = page("/metrics");
        const auto at = text.find("\n" + name + " ");
        REQUIRE(at != std::string::npos);
        return std::stod(text.substr(at + name.size() + 2));
    }
    /// A new store client asks and gets its answer: the daemon is alive, and keeps nobody waiting.
    void require_prompt_service() const {
        const auto start = std::chrono::steady_clock::now();
        const auto socket = connect();
        socket.send(c10d_bytes::validate + c10d_bytes::ping());
        REQUIRE(socket.receive(4) == c10d_bytes::pong);
        REQUIRE(std::chrono::steady_clock::now() - start < 10s);
    }

  private:
    rendezvous::EventLoop loop_;
    std::unique_ptr<rendezvous::Daemon> daemon_;
};

}  // namespace muster
