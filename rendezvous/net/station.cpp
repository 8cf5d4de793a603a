#include "rendezvous/net/station.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/sockets/tcp_options.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/c10d/operation.h"

namespace muster::rendezvous {

namespace {

// One recv takes this much at most: a large value arrives in few pieces. Shared by all connections of the station, and
// only the part that is used costs memory.
constexpr std::size_t read_buffer_bytes = 256 * 1024;

// Entries in the list of unproven connections that may be out of date before it is cleaned.
constexpr std::size_t unproven_skipped_max = 1'024;

bool is_letter(unsigned char byte) {
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
}

}  // namespace

DialectKind classify(unsigned char first_byte) {
    if (c10d::is_first_byte(first_byte)) return DialectKind::c10d;
    if (is_letter(first_byte)) return DialectKind::http;
    if (first_byte == PskChannel::first_byte) return DialectKind::tls;
    return first_byte > 18 ? DialectKind::native : DialectKind::unknown;
}

Station::Station(EventLoop& loop, std::unique_ptr<Listener> listener, Dialects dialects, NetLimits limits,
                 std::shared_ptr<MemoryBudget> memory)
    : loop_(loop),
      port_(listener->port()),
      listener_(std::move(listener)),
      dialects_(dialects),
      limits_(limits),
      memory_(std::move(memory)),
      read_buffer_(read_buffer_bytes) {}

Station::~Station() {
    if (started_) loop_.remove(*this);
    const Instant now = std::chrono::steady_clock::now();
    flush_dirty(now);
    while (!connections_.empty()) end(*connections_.begin()->second, "the port is closed", now);
}

Result<void> Station::begin_accepting(Listener& listener) {
    // Accepted connections inherit these: no system calls for each of ten thousand.
    tune_stream(listener.fd(), limits_.unread_max);
    return listener.start(loop_, [this](AcceptedSocket socket) { accepted(std::move(socket)); });
}

void Station::retire_all_but(const Dialect* kept, Instant now) {
    listener_.reset();
    more_listeners_.clear();
    flush_dirty(now);
    std::vector<Connection*> others;
    for (const auto& [id, connection] : connections_)
        if (kept == nullptr || connection->dialect_ != kept || !connection->established_)
            others.push_back(connection.get());
    for (auto* one : others) end(*one, "the port is closed", now);
}

Result<void> Station::listen_also(std::unique_ptr<Listener> listener) {
    auto listening = begin_accepting(*listener);
    if (listening) more_listeners_.push_back(std::move(listener));
    return listening;
}

Result<void> Station::start() {
    auto listening = begin_accepting(*listener_);
    if (!listening) return listening;
    started_ = true;
    loop_.add(*this);
    return {};
}

Connection* Station::find(ConnectionId id) {
    const auto found = connections_.find(id);
    return found == connections_.end() ? nullptr : found->second.get();
}

void Station::accepted(AcceptedSocket socket) {
    const Instant now = std::chrono::steady_clock::now();
    ++counts_.accepted;
    if (!has_place_for(socket, now)) {
        ++counts_.refused;
        ::close(socket.fd);
        return;
    }
    const ConnectionId id = ++last_id_;
    auto owned = std::make_unique<Connection>(*this, id, std::move(socket));
    if (const auto watching = loop_.add(owned->fd(), Connection::read_events, *owned); !watching) {
        ++counts_.refused;
        return log_limited(cat("connection from ", owned->describe_peer(), " closed: ", watching.error().context), now);
    }
    auto& connection = *connections_.emplace(id, std::move(owned)).first->second;
    count_source(connection);
    unproven_.push_back(id);
    handshakes_.push_back({.connection = id, .at = now + limits_.handshake_timeout});
    // Every connection begins as the store's, which has rules of its own for the silent ones.
    if (dialects_.c10d != nullptr && connection.objection().empty()) adopt(connection, *dialects_.c10d, now);
}

bool Station::has_place_for(const AcceptedSocket& socket, Instant now) {
    const auto found = sources_.find(source_of(socket.address));
    if (!socket.judgement.is_own && found != sources_.end()) {
        const auto [unproven, proven] = found->second;
        if (unproven >= limits_.unproven_per_source_max + proven * limits_.unproven_per_agent) {
            log_limited(
                cat("connection from ", socket.address, " refused: ", unproven, " connections of ", found->first,
                    " are open that are not proven to be a job's, which is the limit (OPERATING.md, Limits)"),
                now);
            return false;
        }
    }
    if (connections_.size() < limits_.connections_max || give_way(now)) return true;
    log_limited(cat("connection from ", socket.address, " refused: ", connections_.size(), " are open on port ", port(),
                    ", which is the limit"),
                now);
    return false;
}

/// The oldest connection that has not shown what it is leaves its place to a new one, then the oldest agent of a job
/// without a sealed round. A client of the store that has spoken does not, nor the silent second connection of an old
/// PyTorch: a worker's connections live as long as its round.
bool Station::give_way(Instant now) {
    const auto close_first = [&](std::deque<ConnectionId>& waiting, Standing highest) {
        while (!waiting.empty()) {
            Connection* connection = find(waiting.front());
            waiting.pop_front();
            if (connection == nullptr || connection->standing_ >= Standing::seated) continue;
            if (connection->dialect_ == dialects_.c10d && (connection->heard_ || connection->kept_silent_)) continue;
            if (connection->standing_ > highest) {
                joined_.push_back(connection->id());
                continue;
            }
            refuse(*connection,
                   cat("its job has no round, and its place is needed: ", connections_.size(), " are open"), now);
            return true;
        }
        return false;
    };
    return close_first(unproven_, Standing::stranger) || close_first(joined_, Standing::joined);
}

void Station::count_source(const Connection& connection) {
    if (connection.is_own()) return;
    auto& [unproven, proven] = sources_[connection.source_];
    ++(connection.standing_ == Standing::proven ? proven : unproven);
}

void Station::uncount_source(const Connection& connection) {
    if (!connection.is_own()) {
        const auto found = sources_.find(connection.source_);
        auto& [unproven, proven] = found->second;
        --(connection.standing_ == Standing::proven ? proven : unproven);
        if (unproven + proven == 0) sources_.erase(found);
    }
    if (unproven_.size() + joined_.size() <= 2 * connections_.size() + unproven_skipped_max) return;
    for (auto* waiting : {&unproven_, &joined_})
        std::erase_if(*waiting, [this](ConnectionId id) {
            const Connection* one = find(id);
            return one == nullptr || one->standing_ >= Standing::seated;
        });
}

/// Readers that do not read hold too much of the memory. One at a time: its memory is free at the end of this turn.
bool Station::close_slowest_reader(Instant now) {
    Connection* slowest = nullptr;
    for (const auto& [id, connection] : connections_)
        if (connection->blocked_ && (slowest == nullptr || connection->unsent_bytes() > slowest->unsent_bytes()))
            slowest = connection.get();
    if (slowest == nullptr) return false;
    refuse(*slowest,
           cat("it left ", slowest->unsent_bytes(), " bytes unread, and ", memory_->waiting_bytes(), " of ",
               memory_->bytes_max(), " bytes of memory wait for readers"),
           now);
    return true;
}

bool Station::adopt(Connection& connection, Dialect& dialect, Instant now) {
    connection.dialect_ = &dialect;
    connection.session_ = dialect.begin(connection, now);
    if (connection.session_) return true;
    connection.finish(cat("not wanted by ", dialect.name()));
    return false;
}

void Station::choose_dialect(Connection& connection, unsigned char first_byte, Instant now) {
    connection.heard_ = true;
    Dialect* dialect = nullptr;
    switch (classify(first_byte)) {
        case DialectKind::c10d: dialect = dialects_.c10d; break;
        case DialectKind::http: dialect = dialects_.http; break;
        case DialectKind::native: dialect = dialects_.native; break;
        case DialectKind::tls:  // inside TLS
        case DialectKind::unknown: break;
    }
    if (dialect == nullptr) return refuse(connection, "its first byte begins no protocol that is spoken here", now);
    const bool is_let_in = dialect == dialects_.http && (dialects_.http_judges_users || connection.may_use_http());
    if (!connection.objection().empty() && !is_let_in) return turn_away(connection, *dialect, now);
    if (dialect == connection.dialect_) return;  // as it began
    if (connection.session_) connection.session_->ended("it speaks another protocol", now);
    connection.session_.reset();
    adopt(connection, *dialect, now);
}

/// False: there is none here.
bool Station::begin_tls(Connection& connection, Instant now) {
    connection.heard_ = true;
    if (connection.session_) connection.session_->ended("it speaks TLS", now);
    connection.session_.reset();
    connection.dialect_ = nullptr;
    if (!dialects_.tls) {
        ++counts_.refused;
        const bool is_http_only = dialects_.native == nullptr && dialects_.c10d == nullptr;
        log_limited(cat("connection from ", connection.describe_peer(), " refused: ",
                        is_http_only ? "it speaks TLS, and this port serves http:// alone"
                                     : "it has a key and speaks TLS, and this port has no key; give all nodes the same "
                                       "key, or none"),
                    now);
        connection.send(PskChannel::keyless_answer());
        connection.finish("there is no key here");
        return false;
    }
    if (!memory_->has_room(PskChannel::busy_bytes)) {
        refuse(connection, "it speaks TLS, and the memory is used up", now);
        return false;
    }
    if (decrypted_.empty()) decrypted_.resize(read_buffer_bytes + TlsStream::plain_bytes_more);
    connection.tls_ = std::make_unique<TlsStream>(dialects_.tls, memory_);
    return true;
}

/// The channel has words for the peer, so it is not closed at once.
void Station::tls_failed(Connection& connection, Instant now) {
    ++counts_.refused;
    const auto& channel = connection.tls_->channel();
    const auto why = channel.failure() == PskChannel::Failure::wrong_key
                         ? std::string("it proves no key that is accepted here; all nodes of a job need the same one")
                         : cat("TLS failed: ", channel.why());
    log_limited(cat("connection from ", connection.describe_peer(), " closed: ", why), now);
    connection.finish(why);
}

/// The refusal is an answer, so it comes after the first byte: only that tells the dialect.
void Station::turn_away(Connection& connection, const Dialect& dialect, Instant now) {
    ++counts_.refused;
    log_limited(cat("connection from ", connection.describe_peer(), " refused: ", connection.objection()), now,
                connection.objection());
    connection.send(dialect.refusal(connection.objection()));
    connection.finish("its user is not served");
}

void Station::refuse(Connection& connection, std::string_view why, Instant now) {
    if (connection.gone_) return;
    ++counts_.refused;
    log_limited(cat("connection from ", connection.describe_peer(), " closed: ", why), now);
    end(connection, why, now);
}

void Station::log_limited(std::string_view line, Instant now, std::string_view reason) {
    if (now - log_lines_since_ >= 1s) {
        if (swallowed_count_ > 0) {
            peer_log_.warn(cat("port ", port(), ": ", swallowed_count_, " more lines like these were left out"), now);
        }
        log_lines_since_ = now;
        log_line_count_ = swallowed_count_ = 0;
        last_reason_.clear();
    }
    // A daemon that stood still finds many connections that their processes have closed meanwhile.
    const bool is_said = !reason.empty() && reason == last_reason_;
    if (is_said || ++log_line_count_ > limits_.log_lines_per_second_max) {
        ++swallowed_count_;
        return;
    }
    last_reason_ = reason;
    peer_log_.warn(cat("port ", port(), ": ", line), now);
}

void Station::linger(Connection& connection, Instant now) {
    // Bytes of the peer that nobody has read would turn our close into a reset, and the reset would overtake our last
    // words. So close one side, and wait for the other.
    ::shutdown(connection.fd(), SHUT_WR);
    connection.lingering_ = true;
    lingering_.push_back({.connection = connection.id(), .at = now + limits_.linger});
}

void Station::end(Connection& connection, std::string_view why, Instant now) {
    if (connection.gone_) return;
    connection.gone_ = true;
    loop_.remove(connection.fd(), connection);
    ::close(connection.fd());
    const auto found = connections_.find(connection.id());
    MUSTER_CHECK(found != connections_.end(), connection.id());
    auto owned = std::move(found->second);
    connections_.erase(found);
    uncount_source(connection);
    if (connection.session_) connection.session_->ended(connection.why_.empty() ? why : connection.why_, now);
    loop_.retire(std::move(owned));
}

void Station::mark_dirty(Connection& connection) {
    if (connection.dirty_) return;
    connection.dirty_ = true;
    dirty_.push_back(&connection);
}

void Station::flush_dirty(Instant now) {
    if (flushing_)
        return;  // a flush ended a connection, and its session wants more flushed: the loop below comes to it
    flushing_ = true;
    // By index: a flush may make others dirty, at the end of the list.
    for (std::size_t i = 0; i < dirty_.size(); ++i) {
        dirty_[i]->dirty_ = false;
        dirty_[i]->flush(now);
    }
    dirty_.clear();
    flushing_ = false;
}

void Station::judge_handshakes(Instant now) {
    while (!handshakes_.empty()) {
        const Deadline deadline = handshakes_.front();
        Connection* connection = find(deadline.connection);
        // The store's core judges its own, silent ones included; but who is silent may yet speak another dialect.
        const bool is_store = connection != nullptr && connection->session_ && connection->dialect_ == dialects_.c10d;
        // At once and not when it is due: a deadline that nobody needs would set a timer for every wait of the loop.
        const bool settled = connection == nullptr || connection->established_ || connection->finishing_ ||
                             (is_store && connection->heard_);
        if (!settled && now < deadline.at) return;
        handshakes_.pop_front();
        if (!settled && is_store) connection->kept_silent_ = true;
        if (!settled && !is_store)
            refuse(*connection, cat("no whole request within ", describe(limits_.handshake_timeout)), now);
    }
}

void Station::end_lingering(Instant now) {
    while (!lingering_.empty() && lingering_.front().at <= now) {
        if (Connection* connection = find(lingering_.front().connection)) end(*connection, "finished", now);
        lingering_.pop_front();
    }
}

StationCounts Station::counts() const {
    StationCounts counts = counts_;
    counts.open = connections_.size();
    for (const auto& [id, connection] : connections_) counts.unsent_bytes += connection->unsent_bytes();
    return counts;
}

std::size_t Station::count(const Dialect& dialect) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(connections_, [&](const auto& entry) { return entry.second->dialect_ == &dialect; }));
}

Instant Station::unsent_until(const Dialect& dialect, Instant since, Duration silence_max) const {
    Instant until = Instant::min();
    for (const auto& [id, one] : connections_)
        if (one->dialect_ == &dialect && one->established_ && !one->lingering_)
            until = std::max(until, one->blocked_ ? std::max(one->blocked_at_, since) + silence_max : no_deadline);
    return until;
}

Instant Station::turn(Instant now) {
    judge_handshakes(now);
    end_lingering(now);
    Instant next = no_deadline;
    const auto look_at = [&](Listener& listener) {
        if (listener.resume_at() != no_deadline) listener.resume(now);
        next = std::min(next, listener.resume_at());
    };
    if (listener_) look_at(*listener_);
    for (const auto& listener : more_listeners_) look_at(*listener);
    flush_dirty(now);
    if (memory_->is_short() && close_slowest_reader(now)) next = now;
    if (!handshakes_.empty()) next = std::min(next, handshakes_.front().at);
    if (!lingering_.empty()) next = std::min(next, lingering_.front().at);
    return next;
}

}  // namespace muster::rendezvous
