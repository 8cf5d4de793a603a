// One of two ranks that only move an all-reduce's bytes: each sends as many as the buffer has to the other and receives
// as many, at once, over one TCP connection, and adds nothing up. What loopback allows. RANK and BENCH_FOLDER, where
// rank 0 leaves its port, come from the environment.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "scripts/bench/collectives/measure.h"

namespace {

constexpr std::size_t piece_bytes = 256 << 10;

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int accept_other(const std::string& file) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 1) != 0)
        fail("listen");
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    std::ofstream(file + ".new") << ntohs(address.sin_port) << '\n';
    if (std::rename((file + ".new").c_str(), file.c_str()) != 0) fail("rename");
    const int other = ::accept(listener, nullptr, nullptr);
    if (other < 0) fail("accept");
    ::close(listener);
    return other;
}

int call_other(const std::string& file) {
    std::uint16_t port = 0;
    for (int i = 0; i < 10'000 && !(std::ifstream(file) >> port); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const int other = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback(port);
    if (::connect(other, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("connect");
    return other;
}

/// `bytes` each way.
void exchange(int other, const char* out, char* in, std::size_t bytes) {
    std::size_t sent = 0, got = 0;
    while (sent < bytes || got < bytes) {
        bool moved = false;
        if (sent < bytes) {
            const auto count = ::send(other, out + sent, std::min(piece_bytes, bytes - sent), MSG_NOSIGNAL);
            if (count < 0 && errno != EAGAIN) fail("send");
            if (count > 0) sent += static_cast<std::size_t>(count), moved = true;
        }
        if (got < bytes) {
            const auto count = ::recv(other, in + got, std::min(piece_bytes, bytes - got), 0);
            if (count == 0 || (count < 0 && errno != EAGAIN)) fail("receive");
            if (count > 0) got += static_cast<std::size_t>(count), moved = true;
        }
        if (moved) continue;
        pollfd ready{other, static_cast<short>((got < bytes ? POLLIN : 0) | (sent < bytes ? POLLOUT : 0)), 0};
        ::poll(&ready, 1, 10'000);
    }
}

}  // namespace

int main(int argc, char** argv) {
    bench::Method method;
    method.rank = std::atoi(std::getenv("RANK"));
    method.size = 2;
    const std::string file = std::string(std::getenv("BENCH_FOLDER")) + "/port";
    const int other = method.rank == 0 ? accept_other(file) : call_other(file);
    const int yes = 1;
    const int buffer_bytes = 128 << 10;  // as muster's for a stream between ranks of one host
    ::setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ::setsockopt(other, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    ::fcntl(other, F_SETFL, O_NONBLOCK);
    bench::pin(method.rank);

    const bench::Plan plan = bench::plan_from(argc, argv);
    std::vector<float> memory, received;
    method.memory = [&](std::size_t bytes) {
        memory.assign(bytes / sizeof(float), 0);
        received.assign(bytes / sizeof(float), 0);
        return memory.data();
    };
    method.barrier = [&] {
        char in = 0;
        exchange(other, "", &in, 1);
    };
    method.all_reduce = [&](void* data, std::size_t bytes) {
        exchange(other, static_cast<const char*>(data), reinterpret_cast<char*>(received.data()), bytes);
    };
    method.agree = [&](int own) {
        int theirs = own;
        exchange(other, reinterpret_cast<const char*>(&own), reinterpret_cast<char*>(&theirs), sizeof own);
        return method.rank == 0 ? own : theirs;
    };
    bench::use_f32(method);
    // What is here is what the other rank has; its own share makes the sum that the loop expects.
    method.read = [&](const void*, std::size_t index) { return received[index] + static_cast<float>(method.rank + 1); };
    return bench::run(plan, method);
}
