// Serves PeerAsk on the port of a round's store: an agent asks another whether it has lost the daemon too. The owner
// answers on its own thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "rendezvous/net/session.h"
#include "rendezvous/net/station.h"
#include "rendezvous/servers/round_store.h"

namespace muster::rendezvous {

class PeerDialect final : public Dialect {
  public:
    using Answer = std::function<std::optional<native::PeerAnswer>(const native::PeerAsk&)>;

    PeerDialect(EventLoop& loop, Answer answer, PostToOwner post);

    void attach(Station& station) { station_ = &station; }
    [[nodiscard]] std::string_view name() const override { return "peer"; }
    std::unique_ptr<Session> begin(Connection& connection, Instant now) override;

  private:
    class PeerSession;
    // Posted work holds a weak reference to this and checks that the dialect still exists.
    struct Owner {
        Answer answer;
        PeerDialect* self;
    };

    void ask(ConnectionId connection, native::PeerAsk ask);
    void reply(ConnectionId connection, const std::optional<native::PeerAnswer>& answer);

    EventLoop& loop_;
    PostToOwner post_;
    std::shared_ptr<Owner> owner_;
    Station* station_ = nullptr;
};

}  // namespace muster::rendezvous
