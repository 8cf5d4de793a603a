// What is spoken on one connection, and who begins it. All calls come on the loop's thread.
#pragma once

#include <memory>
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
};

}  // namespace muster::rendezvous
