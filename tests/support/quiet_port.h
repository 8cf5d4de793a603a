// A port that a test opens, closes and opens again.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include "rendezvous/base/file_descriptor.h"
#include "tests/support/catch.h"

namespace muster {

/// A port of loopback where nobody listens, and which the kernel gives to nobody else. A listener may still take it.
class QuietPort {
  public:
    QuietPort() {
        const int on = 1;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        REQUIRE(::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
        REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        number_ = ntohs(address.sin_port);
    }
    [[nodiscard]] std::uint16_t number() const { return number_; }

  private:
    FileDescriptor fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    std::uint16_t number_ = 0;
};

}  // namespace muster
