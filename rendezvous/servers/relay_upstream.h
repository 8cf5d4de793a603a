// The relay's connection to the store: dials without blocking, sends what is queued, and receives frames. On the loop's
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/outbox.h"
#include "rendezvous/wire/c10d/relay.h"

namespace muster::rendezvous {

class RelayUpstream final : public EventLoop::Handler {
  public:
    struct Events {
        std::function<void(const c10d::RelayReader::Piece&)> piece;
        std::function<void()> drained;                      ///< All that was queued has been written.
        std::function<void(const std::string& why)> ended;  ///< Not after close().
    };

    /// `loop` must outlive it. Destroy it between turns, or retire() it.
    RelayUpstream(EventLoop& loop, Duration unread_max, Events events);
    ~RelayUpstream() override;

    /// Begins to connect. Errors: from the system; the connection's own failure comes as `ended`.
    Result<void> dial(const SocketAddress& store, Instant deadline);
    /// Ends the connection if it is not made by its deadline. Returns when to call next.
    Instant elapsed(Instant now);
    /// Queues a frame; flush() writes.
    void send(std::uint32_t client, std::string_view bytes);
    void flush();
    [[nodiscard]] std::size_t unsent_bytes() const { return outbox_.unsent_bytes(); }
    void close();

    void ready(std::uint32_t events, Instant now) override;

  private:
    void receive();
    void end(const std::string& why);
    void watch();

    EventLoop& loop_;
    const Duration unread_max_;
    const Events events_;
    FileDescriptor socket_;
    bool is_connected_ = false;
    Instant dial_deadline_ = no_deadline;
    std::uint32_t watched_ = 0;
    Outbox outbox_;
    c10d::RelayReader reader_;
    std::vector<char> buffer_;
};

}  // namespace muster::rendezvous
