// The end of a datagram socket at which a test plays a service that programs tell something: a journal, a manager.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

namespace muster::test {

class DatagramSocket {
  public:
    DatagramSocket() : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path_.copy(address.sun_path, sizeof address.sun_path - 1);
        REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        const timeval time_out{.tv_sec = 60, .tv_usec = 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &time_out, sizeof time_out);
    }
    ~DatagramSocket() { ::close(fd_); }
    DatagramSocket(const DatagramSocket&) = delete;
    DatagramSocket& operator=(const DatagramSocket&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

    /// The next datagram; empty after a minute, or at once with MSG_DONTWAIT where there is none.
    std::string hear(int flags = 0) {
        std::string bytes(256 << 10, '\0');
        const auto size = ::recv(fd_, bytes.data(), bytes.size(), flags);
        bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
        return bytes;
    }

  private:
    ScratchFolder folder_;
    std::string path_ = folder_ / "socket";
    int fd_;
};

}  // namespace muster::test
