// The worker's end of the channel to its agent (rendezvous/wire/local). Optional: without MUSTER_AGENT_SOCKET, under
// torchrun or alone, there is none, and nothing that a worker says is waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/wire/local/messages.h"
#include "worker_runtime/transport/fd_watch.h"

namespace muster::runtime {

class AgentLink {
  public:
    /// Gets a message, and the descriptor beside it (local::Offer; else an invalid one).
    using Heard = std::function<void(const local::Message&, FileDescriptor)>;

    /// A connection to the agent's end at `address`, not blocking. The errors: invalid_argument, unreachable.
    static Result<FileDescriptor> reach(const std::string& address);

    /// `heard` gets the agent's messages in the watch's thread. An error (unreachable) when nobody listens at
    /// `address`.
    static Result<std::unique_ptr<AgentLink>> connect(const std::string& address, std::shared_ptr<FdWatch> watch,
                                                      Heard heard);
    ~AgentLink();
    AgentLink(const AgentLink&) = delete;
    AgentLink& operator=(const AgentLink&) = delete;

    /// Sends now, or drops the message (false) where the agent is slow or gone: training never waits for it. With a
    /// descriptor for local::Give, which stays the caller's.
    bool send(const local::Message& message, const FileDescriptor* gift = nullptr);

  private:
    AgentLink(FileDescriptor socket, std::shared_ptr<FdWatch> watch, Heard heard);
    bool take_all();

    FileDescriptor socket_;
    std::shared_ptr<FdWatch> watch_;
    Heard heard_;
    std::uint64_t watched_ = 0;
};

}  // namespace muster::runtime
