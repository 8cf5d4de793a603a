// One TCP connection with blocking calls that all have a deadline.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

class BlockingSocket {
  public:
    BlockingSocket() = default;

    /// Connects, and enables TCP_NODELAY and keepalive. Errors: unreachable, timed_out.
    static Result<BlockingSocket> connect(const SocketAddress& address, Instant deadline);
    /// Starts to connect, for callers that do other work meanwhile. Error: unreachable.
    static Result<BlockingSocket> begin_to_connect(const SocketAddress& address);
    /// Waits for the connection. Errors: unreachable; timed_out, after which it may be called again.
    Result<void> wait_until_connected(Instant deadline) const;

    /// Returns when the kernel has accepted all bytes.
    Result<void> send(std::string_view bytes, Instant deadline);
    /// Shuts down the sending side; what the peer sends is still received.
    void end_sending() const;
    /// Every call in progress and every later one fails. From any thread, while the object lives.
    void interrupt() const;
    /// Returns at least one received byte; the view is valid until the next call. peer_closed: the stream has ended.
    Result<std::string_view> receive(Instant deadline);

  private:
    explicit BlockingSocket(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
    Result<void> wait_for(short events, Instant deadline) const;

    FileDescriptor descriptor_;
    std::string buffer_;
};

}  // namespace muster::rendezvous
