// One TCP connection with blocking calls that all have a deadline.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

class BlockingSocket {
  public:
    BlockingSocket() = default;
    BlockingSocket(BlockingSocket&& other) noexcept;
    BlockingSocket& operator=(BlockingSocket&& other) noexcept;
    ~BlockingSocket();

    /// Connects with TCP_NODELAY and keepalive on. unreachable or timed_out.
    static Result<BlockingSocket> connect(const SocketAddress& address, Instant deadline);
    /// The same in two parts, for whoever looks at something else meanwhile: begins to connect. unreachable.
    static Result<BlockingSocket> begin_to_connect(const SocketAddress& address);
    /// Waits for the end of that. unreachable; after timed_out it may be called again.
    Result<void> wait_until_connected(Instant deadline) const;

    /// Returns when the kernel has all of it.
    Result<void> send(std::string_view bytes, Instant deadline);
    /// Nothing more is sent; what comes is still received.
    void end_sending() const;
    /// What has come, at least one byte; the view is valid until the next call. peer_closed at the end of the stream.
    Result<std::string_view> receive(Instant deadline);

  private:
    explicit BlockingSocket(int descriptor) : descriptor_(descriptor) {}
    Result<void> wait_for(short events, Instant deadline) const;

    int descriptor_ = -1;
    std::string buffer_;
};

}  // namespace muster::rendezvous
