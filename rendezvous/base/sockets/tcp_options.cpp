#include "rendezvous/base/sockets/tcp_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace muster {

namespace {

constexpr int keepalive_idle_s = 30;
constexpr int keepalive_interval_s = 10;
constexpr int keepalive_probes = 6;

}  // namespace

void set_option(int fd, int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
}

void tune_stream(int fd, Duration silence_max) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, keepalive_interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, keepalive_probes);
    const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(silence_max).count();
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(milliseconds));
}

void tune_thin_stream(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
}

}  // namespace muster
