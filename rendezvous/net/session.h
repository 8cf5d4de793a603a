// Session: the protocol on one connection. Dialect: creates sessions. All calls run on the loop's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/base/time.h"

namespace muster::rendezvous {

class Connection;

/// One conversation. Owned by its Connection; destroyed after `ended`.
class Session {
  public:
    virtual ~Session() = default;
    /// The next bytes of the stream, in whatever pieces they came. Not called after Connection::finish.
    virtual void received(std::string_view bytes, Instant now) = 0;
    /// Where the next bytes shall be read to, if they are part of something large; else empty. Then `landed` says how
    /// many came, before `received` gets what came behind them.
    virtual std::span<char> landing() { return {}; }
    virtual void landed(std::size_t, Instant) {}
    /// Everything that was sent has been taken by the kernel. Called only while reading is paused.
    virtual void drained(Instant) {}
    /// Exactly once: the connection is closed. `why` is for messages.
    virtual void ended(std::string_view why, Instant now) = 0;
};

/// A kind of conversation. Serves many connections; outlives them.
class Dialect {
  public:
    virtual ~Dialect() = default;
    [[nodiscard]] virtual std::string_view name() const = 0;
    /// Empty when the connection is not wanted; it is then closed.
    virtual std::unique_ptr<Session> begin(Connection& connection, Instant now) = 0;
    /// The bytes that tell a peer in this dialect that it is not served, and `why`. Empty: the dialect has none.
    [[nodiscard]] virtual std::string refusal(std::string_view) const { return {}; }
};

}  // namespace muster::rendezvous
