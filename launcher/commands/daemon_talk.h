// A conversation with a daemon in blocking calls, for programs that have no agent: TLS with other hosts, and on
// loopback clear text with the proofs of the job's key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/status/daemon_socket.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::launcher {

class DaemonTalk {
  public:
    /// Connects, says `hello` and authenticates in both directions with the first of `keys` that the daemon accepts;
    /// without keys there is nothing to prove. All waits of the conversation share `deadline`. Errors: of the
    /// connection; unreachable from a daemon that stands by, with `leader` set; permission_denied: it refuses each key,
    /// or has proved none, and says why to the first. Each is a sentence.
    static Result<DaemonTalk> begin(const SocketAddress& daemon, const native::Hello& hello,
                                    const std::vector<rendezvous::JobKey>& keys, Instant deadline,
                                    std::optional<std::string>* leader = nullptr);

    Result<void> say(const native::Message& message);
    /// A message of this type; another one is an error. That of a refusal is the daemon's own sentence.
    template <class Wanted>
    Result<Wanted> hear() {
        auto message = MUSTER_TRY(next());
        if (auto* wanted = std::get_if<Wanted>(&message)) return std::move(*wanted);
        return Error{Errc::bad_frame, cat("it answered with an unexpected message, ", native::name(message),
                                          "; is it a different version of muster?")};
    }
    /// Says that nothing more follows, and waits until the daemon has read everything. Errors as those of begin.
    Result<void> end();
    /// The leader's endpoint according to a daemon that stands by: empty text if it knows none. Nothing: it leads.
    [[nodiscard]] const std::optional<std::string>& leader() const { return leader_; }

  private:
    DaemonTalk(DaemonSocket socket, Instant deadline) : socket_(std::move(socket)), deadline_(deadline) {}

    static Result<DaemonTalk> begin_with(const rendezvous::JobKey& key, const SocketAddress& daemon,
                                         native::Hello hello, Instant deadline, std::optional<std::string>* leader,
                                         bool& wrong_key);
    Result<void> prove(native::Hello hello, const rendezvous::JobKey& key);
    Result<native::Message> next();

    DaemonSocket socket_;
    Instant deadline_;
    std::optional<std::string> leader_;
    std::string stall_;
    bool wrong_key_ = false;  ///< The daemon refuses this key, and may accept another one.
    native::FrameReader reader_{native::Sender::daemon};
};

}  // namespace muster::launcher
