// One accepted connection of any dialect: reads once per turn, passes the bytes to its session, and writes the
// session's output at once. Owned by its Station.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/memory_budget.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/outbox.h"
#include "rendezvous/net/session.h"
#include "rendezvous/net/tls_stream.h"
#include "rendezvous/rounds/server.h"

namespace muster::rendezvous {

class Station;

/// What a connection has shown. The limits per source and of the whole table go by it.
enum class Standing {
    stranger,  ///< Gives way first when the table is full; counts for its source.
    joined,    ///< An agent of a job without a sealed round, or TLS with a key and no Hello yet: gives way after
               ///< these; counts.
    seated,    ///< An agent of a sealed round: keeps its place; counts.
    proven,    ///< One that cannot be made up by one host alone (KnownAgent): does not count, and raises its source's
               ///< limit.
};

class Connection final : public EventLoop::Handler {
  public:
    /// What a connection that reads is watched for.
    static const std::uint32_t read_events;

    Connection(Station& station, ConnectionId id, AcceptedSocket socket);
    ~Connection() override;

    [[nodiscard]] ConnectionId id() const { return id_; }
    /// Numeric address of the other end.
    [[nodiscard]] const std::string& peer() const { return socket_.address; }
    /// "10.0.0.7 port 40122", for messages.
    [[nodiscard]] std::string describe_peer() const;
    [[nodiscard]] int fd() const { return socket_.fd; }
    /// The kernel attests that the peer is of this host and of our user or root: it is no stranger to be limited.
    [[nodiscard]] bool is_own() const { return socket_.judgement.is_own; }
    /// The identity of the key that the peer has proved by TLS; empty: it speaks in clear text.
    [[nodiscard]] std::string_view key_identity() const;
    /// The objection does not hold for HTTP: the peer has proved a key.
    [[nodiscard]] bool may_use_http() const { return socket_.keyed_http_only && !key_identity().empty(); }
    /// Why the peer is not served; empty: it is.
    [[nodiscard]] const std::string& objection() const { return socket_.judgement.objection; }

    // ---- for sessions; all output of one event is written together, after the event ----
    void send(std::string_view bytes);
    void send(Buffer bytes);
    /// The peer has shown that it speaks the protocol: the station's handshake deadline no longer applies.
    void establish() { established_ = true; }
    /// What is known of the peer now; it never sinks.
    void rise(Standing standing);
    /// Closes a peer that leaves more than this unread.
    void limit_unsent(std::size_t bytes_max) { unsent_bytes_max_ = bytes_max; }
    /// Bytes sent that the kernel has not accepted yet.
    [[nodiscard]] std::size_t unsent_bytes() const {
        return outbox_.unsent_bytes() + (tls_ ? tls_->unsent_bytes() : 0);
    }
    /// Stops reading until `resume_reading`; the session's `drained` is called when its output is written.
    void pause_reading();
    void resume_reading();
    /// So many bytes are missing before anything can happen: the kernel need not wake us for each piece of a large
    /// message. 0 or 1: any byte counts. The end of the stream is news in any case.
    void receive_at_least(std::size_t bytes);
    /// Closes after what was sent has gone out. Nothing more is read.
    void finish(std::string why);
    /// Closed, or about to be: what else the peer has sent does not count.
    [[nodiscard]] bool closing() const { return gone_ || finishing_; }

    void ready(std::uint32_t events, Instant now) override;

  private:
    friend class Station;

    /// Whether epoll has already seen the end of the stream: then one more recv finds it.
    enum class Ahead { unknown, end };

    void read(Ahead ahead, Instant now);
    /// `landed`: so many bytes went to `Session::landing`, and `bytes` came behind them.
    void take(std::size_t landed, std::string_view bytes, Instant now);
    void take_encrypted(std::string_view wire, Instant now);
    void flush(Instant now);
    void after_flush(Instant now);
    void watch();
    [[nodiscard]] bool reading() const { return lingering_ || (!paused_ && !finishing_); }

    Station& station_;
    const ConnectionId id_;
    AcceptedSocket socket_;
    const std::string source_;  ///< source_of its address
    Outbox outbox_;
    MemoryCharge waiting_;
    std::unique_ptr<TlsStream> tls_;  ///< once its first byte was TLS's
    std::unique_ptr<Session> session_;
    const void* dialect_ = nullptr;  // only compared
    std::size_t unsent_bytes_max_;
    std::uint32_t watched_;
    int low_water_mark_ = 1;
    std::string why_;     // given to finish()
    bool heard_ = false;  // the first byte has come
    bool established_ = false;
    Standing standing_ = Standing::stranger;
    bool kept_silent_ = false;  // a store's that said nothing until the handshake's deadline, and that the store kept
    bool paused_ = false;
    bool finishing_ = false;  // no more reading, close when the outbox is empty
    bool lingering_ = false;  // our side is closed; waiting for the other end's
    bool blocked_ = false;    // the kernel takes no more bytes
    Instant blocked_at_{};    // since when; a reader that takes some sets it anew
    bool missed_ = false;     // an edge has come that was not followed to its end: there may be more to read
    bool dirty_ = false;      // in the station's list of those to be flushed
    bool gone_ = false;       // closed; the object lives until the turn's end
};

}  // namespace muster::rendezvous
