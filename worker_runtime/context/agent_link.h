// The worker's end of the channel to its agent (rendezvous/wire/local). Optional: without MUSTER_AGENT_SOCKET (under
// torchrun, or without a launcher) there is none. The worker never waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/local/messages.h"
#include "worker_runtime/transport/fd_watch.h"

namespace muster::runtime {

class AgentLink {
  public:
    /// Receives a message and its descriptor (for local::Offer; else an invalid one).
    using Heard = std::function<void(const local::Message&, FileDescriptor)>;

    /// A non-blocking connection to the agent's end at `address`. Errors: invalid_argument,
    /// unreachable, refused: a process of another user listens there.
    static Result<FileDescriptor> reach(const std::string& address);

    /// The key of this round's ranks, for the token in MUSTER_AGENT_TOKEN. Errors, with what to do: those of reach();
    /// timed_out, peer_closed: the agent sends none.
    static Result<std::string> receive_ranks_key(const std::string& address, const std::string& token,
                                                 Instant deadline);

    /// `heard` receives the agent's messages in the watch's thread, and then `ended` is called when the agent has
    /// closed the channel. unreachable: no process listens at `address`.
    static Result<std::unique_ptr<AgentLink>> connect(const std::string& address, const std::string& token,
                                                      std::shared_ptr<FdWatch> watch, Heard heard,
                                                      std::function<void()> ended = {});
    ~AgentLink();
    AgentLink& operator=(AgentLink&&) = delete;

    /// Sends now, or drops the message and returns false if the agent is slow or gone: training never waits for it. For
    /// local::Give pass a descriptor, which stays the caller's.
    bool send(const local::Message& message, const FileDescriptor* gift = nullptr);

  private:
    AgentLink(FileDescriptor socket, std::shared_ptr<FdWatch> watch, Heard heard, std::function<void()> ended);
    bool take_all();

    FileDescriptor socket_;
    std::shared_ptr<FdWatch> watch_;
    Heard heard_;
    std::function<void()> ended_;
    std::uint64_t watched_ = 0;
};

}  // namespace muster::runtime
