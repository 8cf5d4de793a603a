// Simulated TCP between simulated hosts: bytes in order, in pieces of any size, late, stalled, cut off at any byte.
//
// A connection has two directions, each a queue of segments (bytes, the end, a reset) that arrive one after another.
// What a partition or a stall holds back arrives after it, as TCP's retransmission would have it: a link that is cut
// loses no byte, it only makes both sides wait. A process that dies ends its connections, a host that loses its power
// does not: its peers are left half open until they write to it after it is back, and are reset then.
//
// An end may speak TLS (network_tls.cpp): its handler says and hears plain bytes, and opens after the handshake. A man
// in the middle may then do to the bytes between the ends what he likes (network_tampering.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/client/core/client_core.h"
#include "rendezvous/tls/psk_channel.h"
#include "tests/simulation/chronicle.h"
#include "tests/simulation/host/random.h"

namespace muster::simulation {

using HostIndex = std::uint32_t;

struct Address {
    HostIndex host = 0;
    std::uint16_t port = 0;
    friend auto operator<=>(const Address&, const Address&) = default;
};

/// One end of a connection; the two ends of connection n are 2n (it connected) and 2n + 1 (it accepted).
using StreamId = std::uint64_t;

/// Who sits at an end. Calls come from the event queue, never from inside a call of Network.
class StreamHandler {
  public:
    virtual ~StreamHandler() = default;
    virtual void stream_opened(StreamId stream) = 0;
    virtual void stream_failed(StreamId stream, rendezvous::ConnectionFailed failed) = 0;
    virtual void stream_accepted(StreamId stream, std::uint16_t port) = 0;
    virtual void stream_received(StreamId stream, std::string bytes) = 0;
    virtual void stream_closed(StreamId stream, std::string why) = 0;
};

struct NetworkTemper {
    Duration latency_min = 50us;
    Duration latency_max = 2ms;
    std::uint32_t split_permille = 100;   ///< writes that arrive in several pieces
    std::uint32_t refuse_permille = 0;    ///< connects that are refused although somebody listens
    std::uint32_t lose_syn_permille = 0;  ///< connects that hear nothing
    Duration user_timeout = never;        ///< a sender gives up on bytes that did not arrive for so long

    /// The same network without lost or refused connects.
    [[nodiscard]] NetworkTemper calm() const {
        NetworkTemper calm = *this;
        calm.refuse_permille = 0;
        calm.lose_syn_permille = 0;
        return calm;
    }
};

using Tls = std::shared_ptr<const rendezvous::PskContext>;

class Network {
  public:
    Network(EventQueue& events, Chronicle& chronicle, Random random, NetworkTemper temper)
        : events_(events), chronicle_(chronicle), random_(random), temper_(temper) {}

    // -- what a process does --
    /// With `tls` a connection's first byte decides whether it is TLS, as at the daemon's port.
    void listen(Address at, StreamHandler* handler, Tls tls = nullptr);
    void unlisten(Address at);
    StreamId connect(HostIndex from, Address to, Duration timeout, StreamHandler* handler, Tls tls = nullptr);
    void send(StreamId stream, std::string bytes);
    /// What was sent still goes out, then the end. The closer hears no more of it.
    void close(StreamId stream);
    /// Where the other end is.
    [[nodiscard]] HostIndex peer_host(StreamId stream) const;
    [[nodiscard]] std::size_t unsent_bytes(StreamId stream) const;
    [[nodiscard]] bool is_sealed(StreamId stream) const;
    /// At an end that accepted: whose key the other one has proved; empty: nobody's.
    [[nodiscard]] std::string identity(StreamId stream) const;
    /// Planted bug: who should speak TLS speaks clear text.
    bool leaves_out_tls = false;

    // -- what befalls it --
    /// A process ended: its connections end, at both sides if the network lets them know.
    void process_gone(StreamHandler* handler);
    /// Everything on `host` is gone and says nothing more.
    void power_lost(HostIndex host);
    void power_back(HostIndex host);
    /// Bytes from `from` no longer reach `to`.
    void cut(HostIndex from, HostIndex to) { cut_.insert({from, to}); }
    void heal(HostIndex from, HostIndex to);
    void heal_all();
    [[nodiscard]] bool reaches(HostIndex from, HostIndex to) const;
    /// A random open connection of `host` is reset in the middle of what is under way. False: there is none.
    bool reset_one(HostIndex host);
    /// Nothing of one random connection of `host` arrives for so long; a new connection is not affected.
    bool stall_one(HostIndex host, Duration duration);
    /// The man in the middle changes what an open TLS connection of `host` says next. False: there is none.
    bool tamper_one(HostIndex host);
    /// The same in the handshake of its next connect by TLS.
    void tamper_next(HostIndex host) { tampered_next_.insert(host); }
    /// The next connect of `host` by TLS reaches `handler`, whoever listens.
    void divert(HostIndex host, StreamHandler* handler) { diverted_[host] = handler; }
    /// What an end of a TLS connection has sent, that of one who connected or of one who accepted; empty: none yet.
    [[nodiscard]] std::string recorded(bool accepted);
    void set_temper(NetworkTemper temper) { temper_ = temper; }
    [[nodiscard]] const NetworkTemper& temper() const { return temper_; }

  private:
    enum class Kind { bytes, accept, end, reset };
    struct Segment {
        Kind kind;
        std::string bytes;
        Moment arrives;
        Moment sent;
    };
    struct Direction {
        std::deque<Segment> under_way;
        Moment stalled_until{};
        Moment last_arrival{};
        bool delivery_planned = false;
        bool shut = false;         ///< its sender has sent the end or a reset
        std::string recorded;      ///< of TLS: its first bytes on the wire
        std::string held;          ///< by the man in the middle, who awaits
        std::size_t held_for = 0;  ///< so many segments before he changes them
    };
    /// What one end has to do with TLS.
    struct Seal {
        Tls context;  ///< null: clear text
        std::unique_ptr<rendezvous::PskChannel> channel;
        bool begun = false;   ///< its handler knows of the connection
        std::string unheard;  ///< what the other end has said by TLS and this one has not heard
    };
    struct Connection {
        HostIndex host[2];
        StreamHandler* handler[2];           ///< null: nobody sits there (any more)
        bool half_open[2] = {false, false};  ///< that end's host lost its power and cannot even refuse
        Direction from[2];                   ///< by the sending side
        Seal seal[2] = {};
        std::uint16_t port = 0;
    };
    struct Listener {
        StreamHandler* handler;
        Tls tls;
    };

    void queue(std::uint64_t connection, int side, Kind kind, std::string bytes);
    void plan_delivery(std::uint64_t connection, int side);
    void deliver(std::uint64_t connection, int side);
    void hand_over(std::uint64_t connection, int side, Segment segment);
    void send_in_pieces(std::uint64_t connection, int side, std::string bytes);
    void reach_listener(std::uint64_t connection, Duration timeout);
    // -- network_tls.cpp --
    void shake_hands(std::uint64_t connection, Duration timeout);
    void take(std::uint64_t connection, int side, std::string bytes);
    void open(std::uint64_t connection, int side);
    void hear(std::uint64_t connection, int side, std::string plain);
    void send_sealed(std::uint64_t connection, int side);
    void fail_tls(std::uint64_t connection, int side);
    void tell_end(StreamHandler* handler, std::uint64_t connection, int side, std::string why);
    // -- network_tampering.cpp --
    [[nodiscard]] bool tampers(Connection& connection, int side, std::string& bytes);
    void await_words(Connection& connection);
    void record(const Connection& connection);
    void fail_connect(std::uint64_t connection, Duration after, std::string why);
    void resume_held();
    void reset_from_both_sides(Connection& connection, std::uint64_t id);
    void give_up_if_overdue(std::uint64_t connection, int side);
    void forget_if_over(std::uint64_t connection);
    template <class Wanted>
    std::uint64_t pick_open(HostIndex host, Wanted wanted) {
        std::vector<std::uint64_t> open;
        for (const auto& [id, connection] : connections_) {
            const bool is_open = connection.handler[0] != nullptr && connection.handler[1] != nullptr;
            if (is_open && (connection.host[0] == host || connection.host[1] == host) && wanted(connection))
                open.push_back(id);
        }
        return open.empty() ? 0 : random_.pick(open);
    }
    static constexpr std::uint64_t connection_of(StreamId stream) { return stream / 2; }
    static constexpr int side_of(StreamId stream) { return static_cast<int>(stream % 2); }
    static constexpr StreamId stream_of(std::uint64_t connection, int side) {
        return connection * 2 + static_cast<StreamId>(side);
    }
    Duration latency() { return random_.between(temper_.latency_min, temper_.latency_max); }

    EventQueue& events_;
    Chronicle& chronicle_;
    Random random_;
    NetworkTemper temper_;
    std::map<std::uint64_t, Connection> connections_;
    std::map<Address, Listener> listeners_;
    std::map<HostIndex, StreamHandler*> diverted_;
    std::set<HostIndex> tampered_next_;
    std::vector<std::string> recordings_[2];  ///< of connections that are over, by the side that sent
    std::set<std::pair<HostIndex, HostIndex>> cut_;
    std::set<HostIndex> dark_;  ///< hosts without power
    std::uint64_t next_connection_ = 1;
};

}  // namespace muster::simulation
