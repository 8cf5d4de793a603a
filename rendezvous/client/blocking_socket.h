// One TCP connection with blocking calls that all have a deadline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

/// A resolved address, ready for connect(2).
struct ServerAddress {
    std::string bytes;  ///< a sockaddr
    std::string text;   ///< numeric, without the port, for messages
};

/// Every address of the name, in the resolver's order. A numeric one is never looked up. A name is looked up on a
/// thread of its own, because getaddrinfo has no deadline: after timed_out that thread ends by itself, whenever DNS
/// does.
Result<std::vector<ServerAddress>> look_up(const std::string& host, std::uint16_t port, Instant deadline);

class BlockingSocket {
  public:
    BlockingSocket() = default;
    BlockingSocket(BlockingSocket&& other) noexcept;
    BlockingSocket& operator=(BlockingSocket&& other) noexcept;
    ~BlockingSocket();

    /// Connects with TCP_NODELAY and keepalive on. unreachable or timed_out.
    static Result<BlockingSocket> connect(const ServerAddress& address, Instant deadline);

    /// Returns when the kernel has all of it.
    Result<void> send(std::string_view bytes, Instant deadline);
    /// What has come, at least one byte; the view is valid until the next call. peer_closed at the end of the stream.
    Result<std::string_view> receive(Instant deadline);

  private:
    explicit BlockingSocket(int descriptor) : descriptor_(descriptor) {}
    Result<void> wait_for(short events, Instant deadline) const;

    int descriptor_ = -1;
    std::string buffer_;
};

}  // namespace muster::rendezvous
