// What the store core knows of one connection. Private to store_server*.cpp.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/store/key_value.h"
#include "rendezvous/store/store_relayed.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/wire/c10d/request.h"

namespace muster::rendezvous {

class StoreConnection {
  public:
    StoreConnection(StorePeer& peer_, std::string_view source_) : peer(&peer_), source(source_), waits(this) {}

    enum class Phase : std::uint8_t {
        greeting,  ///< the family is not known yet
        serving,
        relaying,  ///< `relayed` has its clients
        closed,    ///< peer->close() was called
    };

    StorePeer* peer;
    std::string source;
    Phase phase = Phase::greeting;
    bool counted_as_older = false;  ///< in StoreServer::Impl::older_sources
    bool is_relayed = false;        ///< a relay's client, which cannot be a relay itself
    bool silent_companion = false;  ///< past the handshake deadline, tolerated beside an old-family connection
    c10d::RequestScanner scanner;

    // A request that has not arrived whole: its bytes, or its bytes up to a large last value and that value.
    std::string partial;
    std::string tail;  ///< has room for bytes that are still to come; `tail_bytes` have
    std::size_t tail_bytes = 0;
    bool has_tail = false;
    std::size_t charged_bytes = 0;  ///< what partial, tail and held have taken of the quota, with their unused room

    std::string held;  ///< input that came while paused
    bool paused = false;

    std::unique_ptr<RelayedClients> relayed;  ///< of a relay

    WaitSet waits;
    std::vector<std::string> wait_get_keys;  ///< not empty: the parked wait is a WAIT_GET of these
    std::size_t wait_charged_bytes = 0;      ///< what the parked wait has taken of the quota

    Instant handshake_deadline = no_deadline;
    std::list<StoreConnection>::iterator in_all;
    std::list<StoreConnection*>::iterator in_greeting;  ///< valid while handshake_deadline is set
};

}  // namespace muster::rendezvous
