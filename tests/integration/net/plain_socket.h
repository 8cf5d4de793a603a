// A blocking client without any protocol, every call with a deadline.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace muster {

class PlainSocket {
  public:
    /// Connects to a numeric address; `connected()` tells whether that worked.
    PlainSocket(const std::string& address, std::uint16_t port, int receive_buffer_bytes = 0) {
        sockaddr_in6 v6{};
        sockaddr_in v4{};
        const bool is_v6 = ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1;
        v6.sin6_family = AF_INET6;
        v4.sin_family = AF_INET;
        v6.sin6_port = v4.sin_port = htons(port);
        if (!is_v6) ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr);
        fd_ = ::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (receive_buffer_bytes > 0) {
            ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
        }
        const timeval patience{.tv_sec = 20, .tv_usec = 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        connected_ = is_v6 ? ::connect(fd_, reinterpret_cast<sockaddr*>(&v6), sizeof v6) == 0
                           : ::connect(fd_, reinterpret_cast<sockaddr*>(&v4), sizeof v4) == 0;
    }
    ~PlainSocket() {
        if (fd_ >= 0) ::close(fd_);
    }
    PlainSocket(PlainSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
    PlainSocket& operator=(PlainSocket&&) = delete;

    [[nodiscard]] bool connected() const { return connected_; }
    [[nodiscard]] int fd() const { return fd_; }

    bool send(std::string_view bytes) const {
        while (!bytes.empty()) {
            const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }
    /// Exactly `count` bytes, or what came before the end or the deadline.
    std::string receive(std::size_t count) const {
        std::string out(count, '\0');
        const auto got = ::recv(fd_, out.data(), count, MSG_WAITALL);
        out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        return out;
    }
    /// Everything until the other end closes or resets; `closed` is false when the deadline came first.
    std::string receive_all(bool& closed) const {
        std::string out;
        std::array<char, 65536> piece;
        for (;;) {
            const auto got = ::recv(fd_, piece.data(), piece.size(), 0);
            if (got > 0) {
                out.append(piece.data(), static_cast<std::size_t>(got));
                continue;
            }
            closed = got == 0 || errno == ECONNRESET;
            return out;
        }
    }
    [[nodiscard]] bool closed_by_peer() const {
        bool closed = false;
        (void)receive_all(closed);
        return closed;
    }

  private:
    int fd_ = -1;
    bool connected_ = false;
};

namespace c10d_bytes {

inline std::string number(std::uint64_t value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string text(std::string_view bytes) {
    return number(bytes.size()) + std::string(bytes);
}

inline const std::string validate{"\x00\xCE\xF7\x85\x3C", 5};
inline std::string set(std::string_view key, std::string_view value) {
    return '\x01' + text(key) + text(value);
}
inline std::string get(std::string_view key) {
    return '\x03' + text(key);
}
inline std::string erase(std::string_view key) {
    return '\x08' + text(key);
}
inline std::string wait(std::string_view key) {
    return '\x06' + number(1) + text(key);
}
/// To a queue, whose clients wait for the same key: one of them wakes up.
inline std::string push(std::string_view key, std::string_view value) {
    return '\x0e' + text(key) + text(value);
}
inline std::string ping() {
    return std::string("\x0d\x01\x02\x03\x04", 5);
}
inline const std::string pong{"\x01\x02\x03\x04", 4};

}  // namespace c10d_bytes

}  // namespace muster
