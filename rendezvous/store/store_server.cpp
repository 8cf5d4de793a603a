#include "rendezvous/store/store_server.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/store/store_server_impl.h"
#include "rendezvous/wire/c10d/limits.h"

namespace muster::rendezvous {

namespace {

// A last value of at least this size is received in its own string and moved into the map.
constexpr std::size_t tail_bytes_min = 16 * 1024;

// Room for such a value grows to so many times of what has come of it, and by so much at least: a length alone, without
// the bytes, cannot make us hold 8 MiB.
constexpr std::size_t tail_growth = 4;
constexpr std::size_t tail_growth_bytes_min = 64 * 1024;

// What a connection's buffer may keep between requests. It is not charged, and there may be 80,000 connections.
constexpr std::size_t kept_buffer_bytes = 256;

void shrink(std::string& buffer) {
    if (buffer.capacity() > kept_buffer_bytes) {
        std::string().swap(buffer);
    } else {
        buffer.clear();
    }
}

/// What a string has taken of the heap, with its unused room.
std::size_t heap_bytes(const std::string& text) {
    static const std::size_t inside = std::string().capacity();
    return text.capacity() > inside ? text.capacity() : 0;
}

}  // namespace

StoreServer::StoreServer(StoreConfig config) : impl_(std::make_unique<Impl>(config)) {}
StoreServer::~StoreServer() {
    for (StoreConnection& connection : impl_->connections) impl_->map.cancel(connection.waits);
}

StoreConnection* StoreServer::accept(StorePeer& peer, std::string_view source, Instant now) {
    const auto count = impl_->connections.size() - impl_->relayed_count;
    if (count >= impl_->config.connection_count_max) {
        peer.close(cat("the store serves ", count, " connections, its maximum"));
        return nullptr;
    }
    StoreConnection& connection = impl_->add(peer, source);
    connection.handshake_deadline = now + impl_->config.handshake_timeout;
    connection.in_greeting = impl_->greeting.insert(impl_->greeting.end(), &connection);
    return &connection;
}

StoreFlow StoreServer::receive(StoreConnection& connection, std::string_view bytes, Instant) {
    MUSTER_CHECK(!connection.paused, connection.source);
    return impl_->serve(connection, bytes);
}

std::span<char> StoreServer::landing(StoreConnection& connection) {
    const bool lands = connection.has_tail && connection.phase == StoreConnection::Phase::serving;
    if (!lands) return {};
    const auto place = Impl::room(connection);
    return impl_->charge(connection) ? place : std::span<char>{};
}

StoreFlow StoreServer::landed(StoreConnection& connection, std::size_t size, Instant) {
    MUSTER_CHECK(connection.has_tail && connection.tail_bytes + size <= connection.tail.size(), size);
    connection.tail_bytes += size;
    if (!impl_->charge(connection)) return StoreFlow::closed;
    if (missing_bytes(connection) > 0) return StoreFlow::read;
    ReplyWriter replies(impl_->reply_buffer);
    replies.begin(*connection.peer);
    impl_->act_on_tail(connection, replies);
    if (connection.phase == StoreConnection::Phase::closed) return StoreFlow::closed;
    replies.flush();
    return StoreFlow::read;
}

StoreFlow StoreServer::resume(StoreConnection& connection, Instant) {
    return impl_->resume(connection);
}

std::size_t StoreServer::missing_bytes(const StoreConnection& connection) const {
    const std::size_t have = connection.partial.size() + connection.tail_bytes;
    if (connection.phase != StoreConnection::Phase::serving || have == 0) return 0;
    const std::size_t needed = connection.scanner.needed();
    return needed > have ? needed - have : 0;
}

void StoreServer::ended(StoreConnection& connection) {
    impl_->forget(connection);
}

void StoreServer::clear(std::string_view why) {
    for (StoreConnection& connection : impl_->connections) {
        const bool has_spoken = connection.phase == StoreConnection::Phase::serving ||
                                connection.phase == StoreConnection::Phase::relaying || !connection.partial.empty();
        if (has_spoken || connection.silent_companion) impl_->close(connection, std::string(why));
    }
    impl_->map.clear();
}

Instant StoreServer::deadline() const {
    return impl_->greeting.empty() ? no_deadline : impl_->greeting.front()->handshake_deadline;
}

void StoreServer::elapsed(Instant now) {
    while (deadline() <= now && !impl_->greeting.empty()) {
        StoreConnection& connection = *impl_->greeting.front();
        impl_->end_handshake(connection);
        connection.silent_companion = connection.partial.empty() && impl_->older_sources.contains(connection.source);
        if (!connection.silent_companion)
            impl_->close(connection, cat("no request within ", describe(impl_->config.handshake_timeout)));
    }
}

void StoreServer::sweep() {
    impl_->map.sweep();
}

StoreUsage StoreServer::usage() const {
    impl_->map.sweep();
    return {.connection_count = impl_->connections.size(),
            .key_count = impl_->map.value_count(),
            .bytes = impl_->map.bytes(),
            .wait_count = impl_->map.wait_count()};
}

StoreConnection& StoreServer::Impl::add(StorePeer& peer, std::string_view source) {
    StoreConnection& connection = connections.emplace_back(peer, source);
    connection.in_all = std::prev(connections.end());
    return connection;
}

void StoreServer::Impl::forget(StoreConnection& connection) {
    end_all_relayed(connection);
    end_wait(connection);
    end_handshake(connection);
    map.give_bytes(connection.charged_bytes);
    if (connection.counted_as_older) {
        const auto count = older_sources.find(connection.source);
        if (--count->second == 0) older_sources.erase(count);
    }
    connections.erase(connection.in_all);
}

StoreFlow StoreServer::Impl::resume(StoreConnection& connection) {
    connection.paused = false;
    const std::string held = std::exchange(connection.held, {});
    map.give_bytes(std::exchange(connection.charged_bytes, 0));
    return serve(connection, held);
}

StoreFlow StoreServer::Impl::serve(StoreConnection& connection, std::string_view bytes) {
    if (connection.phase == StoreConnection::Phase::closed) return StoreFlow::closed;
    if (connection.phase != StoreConnection::Phase::relaying) {
        ReplyWriter replies(reply_buffer);
        replies.begin(*connection.peer);
        serve_all(connection, bytes, replies);
        if (connection.phase == StoreConnection::Phase::closed) return StoreFlow::closed;
        replies.flush();
    }
    if (connection.phase == StoreConnection::Phase::relaying) return serve_relayed(connection, bytes);
    return connection.paused ? StoreFlow::paused : StoreFlow::read;
}

void StoreServer::Impl::serve_all(StoreConnection& connection, std::string_view& bytes, ReplyWriter& replies) {
    if (connection.phase == StoreConnection::Phase::greeting && !greet(connection, bytes)) return;
    while (!bytes.empty() && connection.phase == StoreConnection::Phase::serving) {
        if (replies.total() >= config.output_bytes_pause) {
            connection.held.assign(bytes);
            connection.paused = true;
            charge(connection);
            return;
        }
        if (connection.partial.empty()) {
            const auto scanned = connection.scanner.scan(bytes);
            if (scanned == c10d::Scan::complete) {
                const auto size = connection.scanner.needed();
                act(connection, bytes.substr(0, size), nullptr, replies);
                bytes.remove_prefix(size);
                continue;
            }
            if (scanned == c10d::Scan::incomplete) {
                connection.partial.assign(bytes);
                bytes = {};
                begin_tail(connection);
                charge(connection);
                return;
            }
        } else {
            if (!fill(connection, bytes)) return;
            if (connection.has_tail) {
                act_on_tail(connection, replies);
                continue;
            }
            const auto scanned = connection.scanner.scan(connection.partial);
            if (scanned == c10d::Scan::complete) act_on_partial(connection, nullptr, replies);
            if (scanned == c10d::Scan::incomplete) begin_tail(connection);
            if (scanned != c10d::Scan::refused) continue;
        }
        replies.flush();
        return close(connection, connection.scanner.refusal());
    }
}

// Five bytes tell a handshake from the older family's SET, whose key length would have to be a gigabyte.
bool StoreServer::Impl::greet(StoreConnection& connection, std::string_view& bytes) {
    if (bytes.empty()) return false;
    std::string& seen = connection.partial;
    const auto first = static_cast<unsigned char>(seen.empty() ? bytes[0] : seen[0]);
    if (!c10d::is_first_byte(first)) {
        close(connection, cat("the first byte, ", static_cast<unsigned>(first), ", is not of the c10d protocol"));
        return true;
    }
    bool older = first != 0;
    if (!older) {
        const auto size = std::min(bytes.size(), std::size_t{5} - seen.size());
        seen.append(bytes.substr(0, size));
        bytes.remove_prefix(size);
        if (seen.size() < 5) return false;
        ByteReader reader(std::string_view(seen).substr(1));
        const auto word = reader.number<std::uint32_t>();
        if (word == c10d::relay_magic && !connection.is_relayed) {
            seen.clear();
            end_handshake(connection);
            begin_relay(connection);
            return true;
        }
        older = word != c10d::handshake_magic;
        if (older && word > c10d::key_bytes_max) {
            close(connection, "neither the handshake of c10d nor a request of its older family");
            return true;
        }
        if (!older) seen.clear();
    }
    end_handshake(connection);
    connection.silent_companion = false;
    connection.phase = StoreConnection::Phase::serving;
    connection.scanner.set_family(older ? c10d::Family::older : c10d::Family::newer);
    if (older) {
        connection.counted_as_older = true;
        ++older_sources[connection.source];
    }
    return true;
}

bool StoreServer::Impl::fill(StoreConnection& connection, std::string_view& bytes) {
    const auto needed = connection.scanner.needed();
    const auto missing = needed - std::min(needed, connection.partial.size() + connection.tail_bytes);
    const auto size = std::min(bytes.size(), missing);
    if (connection.has_tail) {
        for (std::size_t copied = 0; copied < size;) {
            const auto place = room(connection);
            const auto piece = bytes.copy(place.data(), std::min(place.size(), size - copied), copied);
            connection.tail_bytes += piece;
            copied += piece;
        }
    } else {
        connection.partial.append(bytes.substr(0, size));
    }
    bytes.remove_prefix(size);
    return charge(connection) && size == missing;
}

std::span<char> StoreServer::Impl::room(StoreConnection& connection) {
    std::string& tail = connection.tail;
    const auto whole = connection.scanner.needed() - connection.partial.size();
    if (tail.size() == connection.tail_bytes) {
        const auto grown = std::min(whole, std::max(tail.size() * tail_growth, tail.size() + tail_growth_bytes_min));
        // Not more than that: a string that grows by itself doubles.
        if (tail.capacity() < grown) {
            std::string larger;
            larger.reserve(grown);
            tail.swap(larger.assign(tail));
        }
        tail.resize(grown);
    }
    return {tail.data() + connection.tail_bytes, std::min(whole, tail.size()) - connection.tail_bytes};
}

void StoreServer::Impl::begin_tail(StoreConnection& connection) {
    const auto offset = connection.scanner.last_value_offset();
    const auto needed = connection.scanner.needed();
    if (offset == 0 || offset > connection.partial.size() || needed - offset < tail_bytes_min) return;
    connection.has_tail = true;
    connection.tail = map.take_spare(needed - offset);
    connection.tail_bytes = connection.partial.size() - offset;
    if (connection.tail.size() < connection.tail_bytes) connection.tail.resize(connection.tail_bytes);
    connection.partial.copy(connection.tail.data(), connection.tail_bytes, offset);
    connection.partial = std::string(connection.partial, 0, offset);
}

void StoreServer::Impl::act_on_tail(StoreConnection& connection, ReplyWriter& replies) {
    connection.scanner.finish();
    connection.tail.resize(connection.tail_bytes);
    act_on_partial(connection, &connection.tail, replies);
}

// The room goes back first: what becomes of the bytes in the map is charged there.
void StoreServer::Impl::act_on_partial(StoreConnection& connection, const std::string* tail, ReplyWriter& replies) {
    map.give_bytes(std::exchange(connection.charged_bytes, 0));
    act(connection, connection.partial, tail, replies);
    drop_partial(connection);
}

void StoreServer::Impl::drop_partial(StoreConnection& connection) {
    connection.has_tail = false;
    connection.tail_bytes = 0;
    shrink(connection.partial);
    shrink(connection.tail);
    map.give_bytes(std::exchange(connection.charged_bytes, 0));
}

bool StoreServer::Impl::charge(StoreConnection& connection) {
    const auto holds = heap_bytes(connection.partial) + heap_bytes(connection.tail) + heap_bytes(connection.held);
    const auto before = connection.charged_bytes;
    if (holds > before) {
        if (auto taken = map.take_bytes(holds - before); !taken) {
            close(connection, std::move(taken.error().context));
            return false;
        }
    } else {
        map.give_bytes(before - holds);
    }
    connection.charged_bytes = holds;
    return true;
}

void StoreServer::Impl::end_wait(StoreConnection& connection) {
    map.cancel(connection.waits);
    std::vector<std::string>().swap(connection.wait_get_keys);
    map.give_bytes(std::exchange(connection.wait_charged_bytes, 0));
}

void StoreServer::Impl::end_handshake(StoreConnection& connection) {
    if (connection.handshake_deadline == no_deadline) return;
    greeting.erase(connection.in_greeting);
    connection.handshake_deadline = no_deadline;
}

void StoreServer::Impl::close(StoreConnection& connection, std::string why) {
    if (connection.phase == StoreConnection::Phase::closed) return;
    connection.phase = StoreConnection::Phase::closed;
    end_all_relayed(connection);
    end_handshake(connection);
    end_wait(connection);
    drop_partial(connection);
    connection.paused = false;
    std::string().swap(connection.held);
    connection.peer->close(std::move(why));
}

}  // namespace muster::rendezvous
