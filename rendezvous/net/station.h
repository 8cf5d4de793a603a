// One listening port with its connections: accepts, selects the dialect by the first byte, enforces the common limits
// (quota, handshake deadline, unread bytes), and flushes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/net/connection.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/peer_log.h"
#include "rendezvous/net/session.h"

namespace muster::rendezvous {

enum class DialectKind { c10d, http, native, tls, unknown };
/// 0..8: PyTorch's store. An ASCII letter: HTTP. 0x16: TLS, with one of the others inside. Above 18 otherwise and no
/// letter: native. 9..18 begin nothing.
DialectKind classify(unsigned char first_byte);

/// An empty one is refused on this port. Silent connections belong to `c10d`: torch <= 2.0 opens one per store.
struct Dialects {
    Dialect* c10d = nullptr;
    Dialect* http = nullptr;
    Dialect* native = nullptr;
    std::shared_ptr<const PskContext> tls = nullptr;  ///< around any of them; empty: there is no key
    /// `http` gets the requests of users of this host that are not served, too, and judges them by a token.
    bool http_judges_users = false;
};

struct StationCounts {
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;  ///< over the quota, too slow, or broke a rule
    std::size_t open = 0;
    std::size_t unsent_bytes = 0;  ///< wait for their readers
};

class Station final : public EventLoop::Ticker {
  public:
    /// `loop` and the dialects outlive it.
    /// `memory` is shared with the dialects.
    Station(EventLoop& loop, std::unique_ptr<Listener> listener, Dialects dialects, NetLimits limits,
            std::shared_ptr<MemoryBudget> memory);
    /// Closes everything; each session's `ended` is called.
    ~Station() override;

    /// On the loop's thread. Errors are EventLoop::add's.
    Result<void> start();
    /// Accepts there as well, once started. Errors as start's.
    Result<void> listen_also(std::unique_ptr<Listener> listener);

    /// Accepts nothing more, writes what has been sent, and closes all connections but established ones of `kept`
    /// (null: all). Not from within a session.
    void retire_all_but(const Dialect* kept, Instant now);
    /// Empty when it is gone.
    [[nodiscard]] Connection* find(ConnectionId id);
    /// Closes at once, with a log line: the peer broke a rule.
    void refuse(Connection& connection, std::string_view why, Instant now);
    /// A log line about a peer: at most so many a second, and one of those with the same `reason`.
    void log_limited(std::string_view line, Instant now, std::string_view reason = {});
    /// Writes what has been sent since the last time; at the latest when the turn ends.
    void flush_dirty(Instant now);

    [[nodiscard]] StationCounts counts() const;
    [[nodiscard]] std::size_t count(const Dialect& dialect) const;
    /// When the last of its established connections that have not been sent everything will have taken nothing for
    /// `silence_max`, counted from `since` at the earliest. no_deadline: one takes all that there is. Instant::min():
    /// there are none.
    [[nodiscard]] Instant unsent_until(const Dialect& dialect, Instant since, Duration silence_max) const;
    /// Also once it is retired.
    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] const NetLimits& limits() const { return limits_; }
    [[nodiscard]] const std::shared_ptr<MemoryBudget>& memory() const { return memory_; }

    Instant turn(Instant now) override;

  private:
    friend class Connection;
    struct Deadline {
        ConnectionId connection;
        Instant at;
    };

    Result<void> begin_accepting(Listener& listener);
    void accepted(AcceptedSocket socket);
    void choose_dialect(Connection& connection, unsigned char first_byte, Instant now);
    bool adopt(Connection& connection, Dialect& dialect, Instant now);
    void turn_away(Connection& connection, const Dialect& dialect, Instant now);
    bool begin_tls(Connection& connection, Instant now);
    void tls_failed(Connection& connection, Instant now);
    void linger(Connection& connection, Instant now);
    void end(Connection& connection, std::string_view why, Instant now);
    void mark_dirty(Connection& connection);
    void judge_handshakes(Instant now);
    bool has_place_for(const AcceptedSocket& socket, Instant now);
    bool give_way(Instant now);
    void count_source(const Connection& connection);
    void uncount_source(const Connection& connection);
    bool close_slowest_reader(Instant now);
    void end_lingering(Instant now);

    EventLoop& loop_;
    const std::uint16_t port_;
    std::unique_ptr<Listener> listener_;
    std::vector<std::unique_ptr<Listener>> more_listeners_;
    Dialects dialects_;
    NetLimits limits_;
    std::shared_ptr<MemoryBudget> memory_;
    std::unordered_map<ConnectionId, std::unique_ptr<Connection>> connections_;
    struct Source {
        std::size_t unproven = 0;
        std::size_t proven = 0;
    };
    std::unordered_map<std::string, Source> sources_;  ///< without our own users on this host
    /// Those that may give way, oldest first; those that are gone or known since are skipped.
    std::deque<ConnectionId> unproven_;
    std::deque<ConnectionId> joined_;  ///< of these, after they were found to have joined
    ConnectionId last_id_ = 0;
    std::vector<Connection*> dirty_;  // emptied before any of them is destroyed
    // Each is in the order of its deadlines, because all of its entries waited equally long.
    std::deque<Deadline> handshakes_;
    std::deque<Deadline> lingering_;
    std::vector<char> read_buffer_;
    std::vector<char> decrypted_;  // of what is in read_buffer_; empty until the first peer speaks TLS
    StationCounts counts_;
    Instant log_lines_since_{};
    std::uint32_t log_line_count_ = 0;
    std::uint32_t swallowed_count_ = 0;
    std::string last_reason_;  // since log_lines_since_
    PeerLog peer_log_;
    bool started_ = false;
    bool flushing_ = false;
};

}  // namespace muster::rendezvous
