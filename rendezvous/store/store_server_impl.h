// The parts of StoreServer. Bytes become requests in store_server.cpp, requests take effect in store_requests.cpp.
#pragma once

#include <list>
#include <map>
#include <span>
#include <string>

#include "rendezvous/store/key_value.h"
#include "rendezvous/store/reply_writer.h"
#include "rendezvous/store/store_connection.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/wire/c10d/request.h"

namespace muster::rendezvous {

struct StoreServer::Impl {
    explicit Impl(const StoreConfig& config_) : config(config_), map(config) {}

    // ---- store_server.cpp: connections and their bytes ----
    /// Serves whole requests from the partial one and `bytes` on; keeps what is left.
    StoreFlow serve(StoreConnection& connection, std::string_view bytes);
    /// Leaves in `bytes` what is a relay's.
    void serve_all(StoreConnection& connection, std::string_view& bytes, ReplyWriter& replies);
    StoreFlow resume(StoreConnection& connection);
    StoreConnection& add(StorePeer& peer, std::string_view source);
    void forget(StoreConnection& connection);
    /// Takes the first bytes; true when the family is known (or the connection was closed).
    bool greet(StoreConnection& connection, std::string_view& bytes);
    /// Takes bytes until the scanner can go on; true when it can.
    bool fill(StoreConnection& connection, std::string_view& bytes);
    void begin_tail(StoreConnection& connection);
    /// Room in the tail for what comes next; not empty as long as bytes of it are missing.
    static std::span<char> room(StoreConnection& connection);
    /// Serves the request whose tail is complete.
    void act_on_tail(StoreConnection& connection, ReplyWriter& replies);
    void act_on_partial(StoreConnection& connection, const std::string* tail, ReplyWriter& replies);
    void drop_partial(StoreConnection& connection);
    /// Keeps the quota in step with what the connection holds; closes the connection when there is no room.
    bool charge(StoreConnection& connection);
    /// The connection waits for nothing any more.
    void end_wait(StoreConnection& connection);
    void end_handshake(StoreConnection& connection);
    void close(StoreConnection& connection, std::string why);

    // ---- store_relayed.cpp: clients behind a relay ----
    static void begin_relay(StoreConnection& relay);
    StoreFlow serve_relayed(StoreConnection& relay, std::string_view bytes);
    void serve_client(StoreConnection& relay, const c10d::RelayReader::Piece& piece);
    std::string take_relayed(const StoreConnection& relay);
    void end_relayed(StoreConnection& relay, std::uint32_t id);
    void end_all_relayed(StoreConnection& relay);
    void resume_relayed(StoreConnection& relay);

    // ---- store_requests.cpp: what a request does ----
    void act(StoreConnection& connection, std::string_view head, const std::string* tail, ReplyWriter& replies);
    /// Empty, or why the connection must be closed.
    std::string carry_out(StoreConnection& connection, NewValue value, ReplyWriter& replies);
    std::string wait(StoreConnection& connection, ReplyWriter& replies);
    std::string keep_wait(StoreConnection& connection, bool wants_values);
    std::string list_keys(ReplyWriter& replies);
    void answer_released(StoreConnection& serving, ReplyWriter& replies);

    const StoreConfig config;
    KeyValue map;
    std::list<StoreConnection> connections;            ///< clients of relays included
    std::size_t relayed_count = 0;                     ///< of them, clients of relays
    std::list<StoreConnection*> greeting;              ///< by handshake deadline, the next one first
    std::map<std::string, std::size_t> older_sources;  ///< live connections of the older family by source address
    c10d::Request request;                             ///< the one being served; kept for its memory
    std::string reply_buffer;
    std::string released_buffer;
};

}  // namespace muster::rendezvous
