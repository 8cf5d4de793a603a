#include "launcher/embedded_daemon.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "rendezvous/net/listener.h"

namespace muster::launcher {

namespace {

using Clock = std::chrono::steady_clock;

/// The daemon's status page, or whatever else answers at `port` of loopback; empty if nothing does.
std::string ask_for_status(int family, std::uint16_t port, Duration limit) {
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return {};
    const auto micro = std::chrono::duration_cast<std::chrono::microseconds>(limit).count();
    timeval wait{};
    wait.tv_sec = micro / 1'000'000;
    wait.tv_usec = micro % 1'000'000;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);  // also bounds connect()
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v4.sin_port = htons(port);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
    v6.sin6_port = htons(port);
    const int connected = family == AF_INET ? ::connect(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof v4)
                                            : ::connect(fd, reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
    constexpr std::string_view question = "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;
    std::string answer;
    if (connected == 0 && ::send(fd, question.data(), question.size(), MSG_NOSIGNAL) > 0) {
        const auto until = Clock::now() + limit;  // a peer that sends a byte at a time must not hold us
        std::array<char, 4096> piece{};
        while (answer.size() < answer_bytes_max && Clock::now() < until) {
            const auto size = ::recv(fd, piece.data(), piece.size(), 0);
            if (size <= 0) break;
            answer.append(piece.data(), static_cast<std::size_t>(size));
        }
    }
    ::close(fd);
    return answer;
}

struct Served {
    bool is_muster = false;
    bool this_job = false;
    bool other_jobs = false;
};

Served served_at(std::uint16_t port, const std::string& job, Duration limit) {
    Served served;
    for (const int family : {AF_INET, AF_INET6}) {
        const auto answer = ask_for_status(family, port, limit);
        const auto body = answer.find("\r\n\r\n");
        if (!answer.starts_with("HTTP/1.1 200") || body == std::string::npos) continue;
        const auto status = nlohmann::json::parse(answer.substr(body), nullptr, false);
        if (!status.is_object() || !status.contains("jobs") || !status["jobs"].is_array()) continue;
        served.is_muster = true;
        for (const auto& one : status["jobs"])
            (one.is_object() && one.value("id", "") == job ? served.this_job : served.other_jobs) = true;
        break;
    }
    return served;
}

}  // namespace

Hosting hosting(const LaunchConfig& config, const std::function<bool()>& own_host) {
    if (config.standalone) return Hosting::told;
    if (config.is_host) return *config.is_host ? Hosting::told : Hosting::no;
    // As in torchrun, static's rank 0 is the host whatever the endpoint is called there (a service's virtual address);
    // but a daemon that already answers at the port is used.
    if (config.backend == Backend::fixed) return config.node_rank == 0 ? Hosting::inferred : Hosting::no;
    return own_host() ? Hosting::inferred : Hosting::no;
}

PortOwner port_owner(std::uint16_t port, const std::string& job, Duration limit) {
    const auto until = Clock::now() + limit;
    constexpr Duration pause = 20ms;  // another muster may be between its bind and its own agent's join
    Served served;
    for (auto left = limit; left > Duration::zero(); left = until - Clock::now()) {
        served = served_at(port, job, left);
        if (served.this_job) return PortOwner::this_job;
        // A musterd serves any job; a muster that hosts for another one ends with it.
        if (served.is_muster && rendezvous::describe_port_holder(port).find("(musterd)") != std::string::npos)
            return PortOwner::this_job;
        std::this_thread::sleep_for(std::min<Duration>(pause, left));
    }
    if (!served.is_muster) return PortOwner::stranger;
    return served.other_jobs ? PortOwner::other_job : PortOwner::this_job;
}

Result<std::unique_ptr<rendezvous::Daemon>> open_daemon(LaunchConfig& config, Hosting hosting,
                                                        rendezvous::EventLoop& loop,
                                                        std::function<void(const std::string& job)> on_job_forgotten) {
    constexpr Duration answer_wait = 1s;
    rendezvous::DaemonConfig daemon;
    // A standalone job is nobody else's business; the name "localhost" would need a look-up.
    if (config.standalone) daemon.listen.address = "127.0.0.1";
    daemon.listen.ports = {config.endpoint.port, config.endpoint.port};
    // A daemon at a known endpoint may be the second one of a job whose other nodes still run a round.
    daemon.server.quiet_start = !config.standalone;
    daemon.on_job_forgotten = std::move(on_job_forgotten);
    auto opened = rendezvous::Daemon::open(loop, std::move(daemon));
    if (opened) {
        config.endpoint.port = (*opened)->port();
        return opened;
    }
    auto error = opened.error();
    if (error.code != Errc::already_exists) return error;
    if (hosting == Hosting::told) {
        error.context += "; end it, choose another port (on all nodes), or leave is_host to be found out";
        return error;
    }
    switch (port_owner(config.endpoint.port, config.job, answer_wait)) {
        case PortOwner::this_job: return std::unique_ptr<rendezvous::Daemon>{};
        case PortOwner::other_job:
            error.context += "; it serves another job, so choose another port for this one (on all nodes)";
            return error;
        case PortOwner::stranger: break;
    }
    error.context += "; it is no muster, so choose another port for the job (on all nodes)";
    return error;
}

}  // namespace muster::launcher
