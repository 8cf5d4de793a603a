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

#include "rendezvous/client/core/client_core.h"
#include "rendezvous/client/rendezvous_link.h"

namespace boost::asio {
class io_context;
}

namespace muster::rendezvous {

class Client final : public RendezvousLink {
  public:
    /// `io` must outlive the client.
    Client(boost::asio::io_context& io, ClientConfig config);
    /// Closes the connection at once, without further callbacks. Call `close` first to send queued messages.
    ~Client() override;
    Client& operator=(Client&&) = delete;

    void submit(native::Message message) override;
    void cut_off(Duration length) override;
    void close(Duration limit, std::function<void()> closed) override;
    [[nodiscard]] bool may_feed() const override;
    [[nodiscard]] Instant heard_until() const override;

    /// As ClientCore::leader_is.
    void leader_is(const std::optional<Endpoint>& leader, std::string why);
    /// The answer to PeerAsk (RoundStoreConfig::answer).
    [[nodiscard]] std::optional<native::PeerAnswer> answer(const native::PeerAsk& ask) const;

  private:
    class Implementation;
    std::shared_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
