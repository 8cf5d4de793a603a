// PyTorch's TCPStore as a pure core: bytes in, bytes out. Both protocol families, every operation 0-18 and our WAIT_GET
// (rendezvous/wire/c10d/C10D.md); the map itself is in key_value.h.
//
// How a driver uses it (everything on one thread, nothing blocks):
//
//   connection = server.accept(peer, "10.0.0.7", now)        after each accept(2)
//   flow = server.receive(*connection, bytes, now)           after each read, chunks of any size (or see landing())
//   server.ended(*connection)                                exactly once, when the socket is gone or taken away
//   server.elapsed(now)                                      when server.deadline() has come
//
// The driver implements StorePeer, one object a connection. The core calls it inside the calls above; an implementation
// only appends to its own output buffer, and writes after the core has returned, so that all replies to one read leave
// in one write. One receive() may send to any number of other connections (released waiters): keep a list of the
// peers with new output and go through it once.
//
// A connection may be an agent's relay (wire/c10d/relay.h). Its clients are then connections of their own, with all
// that is theirs; the driver knows the relay alone.
//
// A port that serves other dialects as well accepts every connection here first, which puts the silent ones under the
// handshake deadline; when the first byte is not c10d's (c10d::is_first_byte), call ended() and give the connection to
// the other dialect.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/base/time.h"
#include "rendezvous/store/shared_value.h"
#include "rendezvous/store/store_config.h"

namespace muster::rendezvous {

/// One connection as the core sees it: the driver's end of it.
class StorePeer {
  public:
    /// Appends to what is to be written. `bytes` is valid only during the call.
    virtual void send(std::string_view bytes) = 0;
    /// The same for a large value (4 KiB and more): keep the reference until it has been written.
    virtual void send(SharedValue value) = 0;
    /// Close after what was sent has gone out; `why` is for the log. Called at most once, and nothing is sent after it.
    /// The connection stays known until the driver calls ended().
    virtual void close(std::string why) = 0;
    /// The store closed a client behind this relay; `why` is for the log. The relay is told in a frame.
    virtual void client_closed(const std::string&) {}

  protected:
    ~StorePeer() = default;
};

/// The core's end of a connection: an opaque handle. Lives from accept() to ended().
class StoreConnection;

/// What the driver shall do with the connection's reading side.
enum class StoreFlow {
    read,    ///< go on reading
    paused,  ///< too many unwritten replies: read no more; once all output is written, call resume()
    closed,  ///< close() was called: read no more, call ended() when the output is written or the peer is gone
};

/// For status pages and tests.
struct StoreUsage {
    std::size_t connection_count = 0;
    std::size_t key_count = 0;   ///< keys with a value; queues are not counted
    std::size_t bytes = 0;       ///< of the memory budget, with values that only replies hold
    std::size_t wait_count = 0;  ///< parked (connection, key) pairs
};

class StoreServer {
  public:
    explicit StoreServer(StoreConfig config);
    ~StoreServer();
    StoreServer& operator=(StoreServer&&) = delete;

    /// A new connection from `source`, a numeric address without port. Null when a quota forbids it: peer.close() has
    /// then been called with the reason, and ended() must not be. `peer` must live until ended().
    StoreConnection* accept(StorePeer& peer, std::string_view source, Instant now);

    /// Bytes as they came, any number. A request takes effect when its last byte is there, never before. Call it only
    /// while less than StoreConfig::output_bytes_pause of what was sent to this connection is unwritten, so that a peer
    /// that asks and never reads fills no memory.
    StoreFlow receive(StoreConnection& connection, std::string_view bytes, Instant now);

    /// Where the next bytes of a large value belong: what a driver reads there need not be copied. Empty when none is
    /// under way. Valid until the next call for this connection.
    std::span<char> landing(StoreConnection& connection);

    /// The first `size` bytes of landing() have come; else as receive().
    StoreFlow landed(StoreConnection& connection, std::size_t size, Instant now);

    /// All output of a paused connection has been written: serve what it had sent meanwhile.
    StoreFlow resume(StoreConnection& connection, Instant now);

    /// So many bytes, at least, are missing from a request that has come in part: nothing can happen before them, so a
    /// driver need not look. 0 when any byte may matter.
    [[nodiscard]] std::size_t missing_bytes(const StoreConnection& connection) const;

    /// Forgets the connection and its waits (one step per key it waits for). Destroys the handle; its peer is not
    /// called any more.
    void ended(StoreConnection& connection);

    /// The static back end's new round: an empty map, and every connection that has spoken c10d is closed. Those whose
    /// first byte has not come yet stay.
    void clear(std::string_view why);

    /// When elapsed() must be called at the latest; no_deadline when there is nothing to wait for.
    [[nodiscard]] Instant deadline() const;
    /// Closes the connections whose handshake is overdue. A silent connection stays where its source has a live
    /// connection of the old family: torch <= 2.0 opens a second one that never speaks.
    void elapsed(Instant now);

    [[nodiscard]] StoreUsage usage() const;
    /// Gives back what was charged for values that were written since; call it while memory is short.
    void sweep();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace muster::rendezvous
