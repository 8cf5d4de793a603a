// One agent's connection to the rendezvous, over Asio: carries out what ClientCore decides.
//
// Everything happens in the caller's io_context, on its thread; only name resolution, which blocks, has a thread of its
// own. A connection is made to each address of the endpoint's name in turn (IPv6 and IPv4 interleaved, each with
// ClientConfig::connect_timeout); the name is resolved anew for every attempt, because a restarted daemon may have
// moved.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/client/core/client_core.h"

namespace boost::asio {
class io_context;
}

namespace muster::rendezvous {

/// What the supervisor's driver gets to hear. Called from the io_context, never from inside a call of Client.
struct ClientCallbacks {
    std::function<void(native::Message message)> on_message;  ///< Deliver
    std::function<void(std::string why)> on_fenced;           ///< kill the workers now, without grace
    std::function<void(std::string why)> on_lost;             ///< no rendezvous to be had: exit code 75
    std::function<void(std::string line)> on_progress;        ///< for a person who waits
    /// There is a connection, to this numeric address; who is there, and whether it leads, is not known yet. May be
    /// empty.
    std::function<void(Endpoint daemon)> on_connected;
};

class Client {
  public:
    /// `io` outlives the client. Nothing is sent before the first `join`.
    Client(boost::asio::io_context& io, ClientConfig config, ClientCallbacks callbacks);
    /// Closes the connection at once; no callback comes any more. Call `flush` first if the last words matter.
    ~Client();

    // ClientCore's verbs.
    void join(native::Join join);
    void workers_failed(std::vector<Failure> failures);
    void workers_succeeded();
    void round_report(native::RoundReport report);
    void leave(std::string why);
    void end_acknowledged();
    void command(native::Command command);
    void fault_answer(native::FaultAnswer answer);
    void workers_seen(native::WorkersSeen seen);
    /// For so long nothing is said, heard or connected any more, to the daemon and to peers, as behind a network that
    /// drops everything. What was to be said or heard meanwhile comes late, as it does when such a network comes back.
    void cut_off(Duration length);
    void leader_is(const std::optional<Endpoint>& leader, std::string why);

    /// The answer to a peer that asks (RoundStoreConfig::answer).
    [[nodiscard]] native::PeerAnswer answer(const native::PeerAsk& ask) const;
    /// Whether the guardian may be fed at this moment; to be asked each lease/10 (ClientCore::may_feed).
    [[nodiscard]] bool may_feed() const;
    /// The last call: ends the connection in order. `done` comes when the daemon has read everything that was sent
    /// (it closes its side then), at once when there is no connection, or after `limit`. Verbs have no effect any more.
    void flush(Duration limit, std::function<void()> done);

  private:
    class Implementation;
    std::shared_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
