// Connections to a server on this host, and what it has cost, for programs that put load on one.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace muster::bench {

[[noreturn]] inline void fail(const std::string& what) {
    const std::string why = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
    std::fprintf(stderr, "%s: %s%s\n", ::program_invocation_short_name, what.c_str(), why.c_str());
    std::exit(1);
}

/// As many open files as the hard limit allows.
inline void raise_open_files() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// A socket to that port of 127.0.0.1, or of the address `host` behind it. With SOCK_NONBLOCK it may still be
/// connecting; a refusal comes as an event then.
inline int connect_to(std::uint16_t port, int flags = 0, std::uint32_t host = 0) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0) fail("socket (raise ulimit -n)");
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && flags == 0) fail("connect");
    return fd;
}

/// Processor time of all threads of a process so far, in seconds.
inline double cpu_of(const std::string& pid) {
    double sum = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/" + pid + "/task")) {
        double nanoseconds = 0;
        std::ifstream(thread.path() / "schedstat") >> nanoseconds;
        sum += nanoseconds * 1e-9;
    }
    return sum;
}

/// Resident memory of a process.
inline double resident_bytes(const std::string& pid) {
    double pages = 0;
    std::ifstream("/proc/" + pid + "/statm") >> pages >> pages;
    return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

}  // namespace muster::bench
