// The relay's connection to the store, in clear text or TLS: dials without blocking, sends what is queued, and receives
// frames. On the loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/memory_budget.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/outbox.h"
#include "rendezvous/net/tls_stream.h"
#include "rendezvous/wire/c10d/relay.h"

namespace muster::rendezvous {

class RelayUpstream final : public EventLoop::Handler {
  public:
    struct Events {
        std::function<void(const c10d::RelayReader::Piece&)> piece;
        std::function<void()> drained;                      ///< All that was queued has been written.
        std::function<void(const std::string& why)> ended;  ///< Not after close().
    };

    /// `loop` must outlive it. Destroy it between turns, or retire() it. `tls`: null for clear text.
    /// `memory` is charged with what is queued.
    RelayUpstream(EventLoop& loop, Duration unread_max, std::unique_ptr<TlsStream> tls,
                  std::shared_ptr<MemoryBudget> memory, Events events);
    ~RelayUpstream() override;

    /// Begins to connect. Errors: from the system; the connection's own failure comes as `ended`.
    Result<void> dial(const SocketAddress& store, Instant deadline);
    /// Ends the connection if it is not made, with its handshake, by its deadline. Returns when to call next.
    Instant elapsed(Instant now);
    /// Queues a frame; flush() writes.
    void send(std::uint32_t client, std::string_view bytes);
    void flush();
    [[nodiscard]] std::size_t unsent_bytes() const {
        return outbox_.unsent_bytes() + (tls_ ? tls_->unsent_bytes() : 0);
    }
    void close();

    void ready(std::uint32_t events, Instant now) override;

  private:
    [[nodiscard]] bool is_open() const;
    void receive();
    void answer_tls();
    void end(const std::string& why);
    void watch();

    EventLoop& loop_;
    const Duration unread_max_;
    const Events events_;
    FileDescriptor socket_;
    const std::unique_ptr<TlsStream> tls_;
    bool is_connected_ = false;
    bool is_blocked_ = false;  ///< The kernel takes no more bytes.
    Instant dial_deadline_ = no_deadline;
    std::uint32_t watched_ = 0;
    Outbox outbox_;
    MemoryCharge held_;  ///< Kept and not waiting: no client is slow because the store is.
    c10d::RelayReader reader_;
    std::vector<char> buffer_;
    std::vector<char> decrypted_;  ///< Of what is in buffer_.
};

}  // namespace muster::rendezvous
