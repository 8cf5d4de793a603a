// Takes commands for the job over a Unix socket of this host, from this user and from root only. The kernel verifies
// the user. One datagram is one native frame: a Command or its CommandAnswer.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "rendezvous/base/closing_ptr.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

class CommandSocket : public std::enable_shared_from_this<CommandSocket> {
  public:
    /// Called from the loop for each command that its giver still waits for; its number is this socket's. `answer` is
    /// to be called with it later.
    using OnCommand = std::function<void(native::Command)>;

    /// Listens at once. An error (limit_exceeded, io) names the address.
    static Result<ClosingPtr<CommandSocket>> open(boost::asio::io_context& loop, const std::string& job,
                                                  OnCommand on_command);
    void close();

    /// To whoever gave the command of that number; who has gone gets nothing.
    void answer(native::CommandAnswer answer);

  private:
    struct Caller {
        explicit Caller(boost::asio::io_context& loop, int socket) : descriptor(loop, socket) {}
        boost::asio::posix::stream_descriptor descriptor;
        std::uint32_t own_number = 0;
    };

    CommandSocket(boost::asio::io_context& loop, FileDescriptor socket, OnCommand on_command)
        : loop_(loop), listener_(loop, socket.release()), pause_(loop), on_command_(std::move(on_command)) {}
    void wait();
    /// False: a connection waits, and cannot be taken.
    bool accept();
    void wait_for(std::uint32_t number);
    bool read(std::uint32_t number, Caller& caller);

    boost::asio::io_context& loop_;
    boost::asio::posix::stream_descriptor listener_;
    boost::asio::steady_timer pause_;
    OnCommand on_command_;
    std::map<std::uint32_t, Caller> callers_;  // by the number of their command, one each
    std::uint32_t last_number_ = 0;
    bool closed_ = false;
};

}  // namespace muster::agent
