#include "rendezvous/servers/peer_dialect.h"

#include <utility>

#include "rendezvous/wire/native/codec.h"

namespace muster::rendezvous {

// One question and one answer per connection, so that a peer cannot keep the owner's thread busy.
class PeerDialect::PeerSession final : public Session {
  public:
    PeerSession(PeerDialect& dialect, Connection& connection) : dialect_(dialect), connection_(connection) {}

    void received(std::string_view bytes, Instant now) override {
        reader_.append(bytes);
        auto message = reader_.next();
        if (!message) return dialect_.station_->refuse(connection_, message.error().context, now);
        if (!*message) return;
        auto* ask = std::get_if<native::PeerAsk>(&**message);
        if (ask == nullptr || asked_) {
            return dialect_.station_->refuse(connection_, "a peer may send one PeerAsk and nothing else", now);
        }
        asked_ = true;
        connection_.establish();
        dialect_.ask(connection_.id(), std::move(*ask));
    }
    void ended(std::string_view, Instant) override {}

  private:
    PeerDialect& dialect_;
    Connection& connection_;
    native::FrameReader reader_{native::Sender::peer};
    bool asked_ = false;
};

PeerDialect::PeerDialect(EventLoop& loop, Answer answer, PostToOwner post)
    : loop_(loop), post_(std::move(post)), owner_(std::make_shared<Owner>(Owner{std::move(answer), this})) {}

std::unique_ptr<Session> PeerDialect::begin(Connection& connection, Instant) {
    if (!owner_->answer || !post_) return nullptr;
    return std::make_unique<PeerSession>(*this, connection);
}

void PeerDialect::ask(ConnectionId connection, native::PeerAsk ask) {
    post_([owner = std::weak_ptr(owner_), &loop = loop_, connection, ask = std::move(ask)] {
        // The owner's thread also destroys the RoundStore, so here it is either complete or gone.
        const auto asked = owner.lock();
        if (!asked) return;
        loop.post([owner, connection, answer = asked->answer(ask)] {
            const auto alive = owner.lock();
            if (alive) alive->self->reply(connection, answer);
        });
    });
}

void PeerDialect::reply(ConnectionId connection, const std::optional<native::PeerAnswer>& answer) {
    Connection* const asker = station_->find(connection);
    if (asker == nullptr) return;
    if (!answer)
        return station_->refuse(*asker, "its question is no other agent's of this round",
                                std::chrono::steady_clock::now());
    std::string bytes;
    native::append_frame(bytes, *answer);
    asker->send(bytes);
    asker->finish("answered");
}

}  // namespace muster::rendezvous
