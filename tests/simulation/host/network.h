// Simulated TCP between simulated hosts: bytes in order, in pieces of any size, late, stalled, cut off at any byte.
//
// A connection has two directions, each a queue of segments (bytes, the end, a reset) that arrive one after another.
// What a partition or a stall holds back arrives after it, as TCP's retransmission would have it: a link that is cut
// loses no byte, it only makes both sides wait. A process that dies ends its connections, a host that loses its power
// does not: its peers are left half open until they write to it after it is back, and are reset then.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

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
    virtual void stream_failed(StreamId stream, std::string why) = 0;
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

class Network {
  public:
    Network(EventQueue& events, Chronicle& chronicle, Random random, NetworkTemper temper)
        : events_(events), chronicle_(chronicle), random_(random), temper_(temper) {}

    // -- what a process does --
    void listen(Address at, StreamHandler* handler);
    void unlisten(Address at);
    StreamId connect(HostIndex from, Address to, Duration timeout, StreamHandler* handler);
    void send(StreamId stream, std::string bytes);
    /// What was sent still goes out, then the end. The closer hears no more of it.
    void close(StreamId stream);
    /// Where the other end is.
    [[nodiscard]] HostIndex peer_host(StreamId stream) const;
    [[nodiscard]] std::size_t unsent_bytes(StreamId stream) const;

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
        bool shut = false;  ///< its sender has sent the end or a reset
    };
    struct Connection {
        HostIndex host[2];
        StreamHandler* handler[2];           ///< null: nobody sits there (any more)
        bool half_open[2] = {false, false};  ///< that end's host lost its power and cannot even refuse
        Direction from[2];                   ///< by the sending side
    };

    void queue(std::uint64_t connection, int side, Kind kind, std::string bytes);
    void plan_delivery(std::uint64_t connection, int side);
    void deliver(std::uint64_t connection, int side);
    void hand_over(std::uint64_t connection, int side, Segment segment);
    void reach_listener(std::uint64_t connection, Address to);
    void fail_connect(std::uint64_t connection, Duration after, std::string why);
    void resume_held();
    void reset_from_both_sides(Connection& connection, std::uint64_t id);
    void give_up_if_overdue(std::uint64_t connection, int side);
    void forget_if_over(std::uint64_t connection);
    std::uint64_t pick_open(HostIndex host);
    Duration latency() { return random_.between(temper_.latency_min, temper_.latency_max); }

    EventQueue& events_;
    Chronicle& chronicle_;
    Random random_;
    NetworkTemper temper_;
    std::map<std::uint64_t, Connection> connections_;
    std::map<Address, StreamHandler*> listeners_;
    std::set<std::pair<HostIndex, HostIndex>> cut_;
    std::set<HostIndex> dark_;  ///< hosts without power
    std::uint64_t next_connection_ = 1;
};

}  // namespace muster::simulation
