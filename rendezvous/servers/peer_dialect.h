// The agents' question to each other, "have you lost the daemon too?", on the port of a round's store. The answer is
// the owner's, on its own thread.
#pragma once

#include <functional>
#include <memory>

#include "rendezvous/net/session.h"
#include "rendezvous/net/station.h"
#include "rendezvous/servers/round_store.h"

namespace muster::rendezvous {

class PeerDialect final : public Dialect {
  public:
    using Answer = std::function<native::PeerAnswer(const native::PeerAsk&)>;

    PeerDialect(EventLoop& loop, Answer answer, PostToOwner post);

    void attach(Station& station) { station_ = &station; }
    [[nodiscard]] std::string_view name() const override { return "peer"; }
    std::unique_ptr<Session> begin(Connection& connection, Instant now) override;

  private:
    class Talk;
    // Both outlive us in what was posted: weak references to this tell it that we are gone.
    struct Owner {
        Answer answer;
        PeerDialect* self;
    };

    void ask(ConnectionId connection, native::PeerAsk ask);

    EventLoop& loop_;
    PostToOwner post_;
    std::shared_ptr<Owner> owner_;
    Station* station_ = nullptr;
};

}  // namespace muster::rendezvous
