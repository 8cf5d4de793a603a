// An agent's connection to the rendezvous: the Asio driver of ClientCore.
//
// Everything runs in the caller's io_context, on its thread; only the blocking name resolution has its own thread. The
// client tries each address of the endpoint's name in turn (IPv6 and IPv4 interleaved, each with
// ClientConfig::connect_timeout). It resolves the name again for every attempt, because a restarted daemon may have
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

/// Callbacks to the supervisor's driver. Called from the io_context, never from inside a call of Client.
struct ClientCallbacks {
    std::function<void(native::Message message)> on_message;  ///< Deliver
    std::function<void(std::string why)> on_fenced;           ///< kill the workers now, without grace
    std::function<void(std::string why)> on_lost;             ///< no rendezvous is available: exit code 75
    std::function<void(std::string line)> on_progress;        ///< a line for the user
    /// A connection to this numeric address is open; the peer's identity is not known yet. May be empty.
    std::function<void(Endpoint daemon)> on_connected;
};

class Client {
  public:
    /// `io` must outlive the client. Nothing is sent before the first `join`.
    Client(boost::asio::io_context& io, ClientConfig config, ClientCallbacks callbacks);
    /// Closes the connection at once, without further callbacks. Call `flush` first to send queued messages.
    ~Client();

    // The calls of ClientCore.
    void join(native::Join join);
    void workers_failed(std::vector<Failure> failures);
    void workers_succeeded();
    void round_report(native::RoundReport report);
    void leave(std::string why);
    void end_acknowledged();
    void command(native::Command command);
    void fault_answer(native::FaultAnswer answer);
    void workers_seen(native::WorkersSeen seen);
    void standbys_seen(native::StandbysSeen seen);
    /// Fault injection: for `length`, behaves as behind a network that drops all packets to the daemon and to peers.
    /// Messages of that time are delivered afterwards.
    void cut_off(Duration length);
    void leader_is(const std::optional<Endpoint>& leader, std::string why);

    /// The answer to PeerAsk (RoundStoreConfig::answer).
    [[nodiscard]] std::optional<native::PeerAnswer> answer(const native::PeerAsk& ask) const;
    /// As ClientCore::may_feed; call it each lease/10.
    [[nodiscard]] bool may_feed() const;
    /// When the last message was sent that the daemon is known to have received.
    [[nodiscard]] Instant heard_until() const;
    /// Must be the last call: closes the connection in order. `done` is called when the daemon has read everything (it
    /// then closes its side), at once without a connection, or after `limit`.
    void flush(Duration limit, std::function<void()> done);

  private:
    class Implementation;
    std::shared_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
