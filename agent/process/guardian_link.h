// The agent's end of the socket to its guardian: whole messages in order, with their descriptors, never blocking.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/process/guardian_wire.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

/// Lives in a shared_ptr, because handlers that are under way hold it. Callbacks come from the loop; after close()
/// there are none.
class GuardianLink : public std::enable_shared_from_this<GuardianLink> {
  public:
    GuardianLink(boost::asio::io_context& context, FileDescriptor socket);

    std::function<void(guardian_wire::Message)> on_message;
    /// The socket has ended, or the guardian has not read for so long that the queue is full. Called once, from the
    /// loop.
    std::function<void(std::string why)> on_lost;

    void begin();
    /// Queues the message; the descriptors are closed here when it has left.
    void send(const guardian_wire::Message& message, std::vector<FileDescriptor> fds = {});
    /// Lets what is queued go if the socket takes it at once, then ends the connection.
    void close();

  private:
    struct Outgoing {
        std::string bytes;
        std::vector<FileDescriptor> fds;
    };

    void read();
    void flush();
    void wait_writable();
    void lose(std::string why);

    boost::asio::posix::stream_descriptor socket_;
    std::deque<Outgoing> queue_;
    bool waiting_writable_ = false;
    bool lost_ = false;
};

}  // namespace muster::agent
