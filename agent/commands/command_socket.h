// Takes commands for the job over a Unix socket of this host, from this user and from root only. The kernel verifies
// the user. One datagram is one native frame: a Command or its CommandAnswer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/wire/native/messages.h"

namespace boost::asio {
class io_context;
}

namespace muster::agent {

class CommandSocket {
  public:
    /// Called from the loop for each command that its giver still waits for; its number is this socket's. `answer` is
    /// to be called with it later.
    using OnCommand = std::function<void(native::Command)>;

    /// Listens at once. An error (limit_exceeded, io) names the address.
    static Result<std::unique_ptr<CommandSocket>> open(boost::asio::io_context& loop, const std::string& job,
                                                       OnCommand on_command);
    ~CommandSocket();
    CommandSocket(const CommandSocket&) = delete;
    CommandSocket& operator=(const CommandSocket&) = delete;

    /// To whoever gave the command of that number; who has gone gets nothing.
    void answer(native::CommandAnswer answer);

  private:
    class Body;
    explicit CommandSocket(std::shared_ptr<Body> body);
    std::shared_ptr<Body> body_;  // shared with the handlers under way
};

}  // namespace muster::agent
