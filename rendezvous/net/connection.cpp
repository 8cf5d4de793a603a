#include "rendezvous/net/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/net/station.h"

namespace muster::rendezvous {

namespace {

// Below the first, two system calls cost more than the wake-ups that they save; the second fits a receive buffer.
constexpr std::size_t low_water_bytes_min = 32 * 1024;
constexpr std::size_t low_water_bytes_max = 512 * 1024;

// First into `place`, what is left into `buffer`.
ssize_t receive(int fd, std::span<char> place, std::vector<char>& buffer) {
    if (place.empty()) return ::recv(fd, buffer.data(), buffer.size(), 0);
    std::array<iovec, 2> parts{iovec{.iov_base = place.data(), .iov_len = place.size()},
                               iovec{.iov_base = buffer.data(), .iov_len = buffer.size()}};
    return ::readv(fd, parts.data(), static_cast<int>(parts.size()));
}

}  // namespace

// Edge-triggered: in the other mode epoll_wait polls each socket once more after every request, just to find nothing.
// A recv that does not fill the buffer has emptied the socket; bytes or an end that come later are a new edge.
const std::uint32_t Connection::read_events = EPOLLIN | EPOLLRDHUP | EPOLLET;

Connection::Connection(Station& station, ConnectionId id, AcceptedSocket socket)
    : station_(station),
      id_(id),
      socket_(std::move(socket)),
      source_(source_of(socket_.address)),
      waiting_(station.memory(), MemoryCharge::Kind::waiting),
      unsent_bytes_max_(station.limits().store_unsent_bytes_max),
      watched_(read_events) {}

Connection::~Connection() {
    if (!gone_) ::close(socket_.fd);
}

std::string Connection::describe_peer() const {
    return cat(socket_.address, " port ", socket_.port);
}

void Connection::send(std::string_view bytes) {
    if (gone_ || finishing_) return;
    outbox_.push(bytes);
    waiting_.set(outbox_.held_bytes());
    station_.mark_dirty(*this);
}

void Connection::send(Buffer bytes) {
    if (gone_ || finishing_) return;
    outbox_.push(std::move(bytes));
    waiting_.set(outbox_.held_bytes());
    station_.mark_dirty(*this);
}

std::string_view Connection::key_identity() const {
    const bool is_proven = tls_ && (tls_->channel().state() == PskChannel::State::open ||
                                    tls_->channel().state() == PskChannel::State::ended);
    return is_proven ? std::string_view(tls_->channel().identity()) : std::string_view();
}

void Connection::rise(Standing standing) {
    if (standing <= standing_) return;
    const bool counts_no_more = standing == Standing::proven;
    if (counts_no_more) station_.uncount_source(*this);
    standing_ = standing;
    if (counts_no_more) station_.count_source(*this);
}

void Connection::pause_reading() {
    paused_ = true;
    station_.mark_dirty(*this);
}

void Connection::resume_reading() {
    paused_ = false;
    watch();
}

void Connection::finish(std::string why) {
    if (gone_ || finishing_) return;
    why_ = std::move(why);
    finishing_ = true;
    station_.mark_dirty(*this);
}

void Connection::receive_at_least(std::size_t bytes) {
    const int mark = bytes < low_water_bytes_min ? 1 : static_cast<int>(std::min(bytes, low_water_bytes_max));
    // Missing bytes of a TLS peer may have been read already, as a part of a record.
    if (mark == low_water_mark_ || gone_ || tls_) return;
    if (::setsockopt(socket_.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) == 0) low_water_mark_ = mark;
}

void Connection::ready(std::uint32_t events, Instant now) {
    if ((events & EPOLLOUT) != 0) {
        blocked_ = false;
        flush(now);
    }
    const bool over = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (!gone_ && (over || (events & EPOLLIN) != 0)) read(over ? Ahead::end : Ahead::unknown, now);
    station_.flush_dirty(now);
}

void Connection::read(Ahead ahead, Instant now) {
    auto& buffer = station_.read_buffer_;
    do {
        if (gone_) return;
        missed_ = !reading();
        if (missed_) return;
        const std::span<char> place = session_ && !closing() && !tls_ ? session_->landing() : std::span<char>{};
        const ssize_t count = receive(socket_.fd, place, buffer);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (count < 0) return station_.end(*this, errno_text(errno), now);
        if (count == 0) return station_.end(*this, "the peer closed it", now);
        const auto size = static_cast<std::size_t>(count);
        const std::size_t landed = std::min(size, place.size());
        take(landed, {buffer.data(), size - landed}, now);
        // A full buffer: there may be more, and no edge will tell. Asking epoll anew lets the others go first.
        if (size == place.size() + buffer.size()) {
            missed_ = true;
            return watch();
        }
    } while (ahead == Ahead::end);
}

void Connection::take(std::size_t landed, std::string_view bytes, Instant now) {
    if (closing()) return;  // discarded while lingering
    if (tls_) return take_encrypted(bytes, now);
    if (!heard_ && classify(static_cast<unsigned char>(bytes[0])) == DialectKind::tls) {
        if (station_.begin_tls(*this, now)) take_encrypted(bytes, now);
        return;
    }
    if (!heard_) station_.choose_dialect(*this, static_cast<unsigned char>(bytes[0]), now);
    if (landed > 0) session_->landed(landed, now);
    if (!bytes.empty() && !closing() && session_) session_->received(bytes, now);
}

/// The dialect inside is chosen by its first byte, as it is outside.
void Connection::take_encrypted(std::string_view wire, Instant now) {
    const auto plain = tls_->decrypt(wire, station_.decrypted_);
    station_.mark_dirty(*this);  // the handshake's answers
    // It has a key of some job, or the daemon's own. What it is good for shows with its Hello or request, which the
    // handshake's deadline awaits.
    if (!key_identity().empty()) rise(Standing::joined);
    if (!plain.empty() && dialect_ == nullptr)
        station_.choose_dialect(*this, static_cast<unsigned char>(plain[0]), now);
    if (!plain.empty() && !closing() && session_) session_->received(plain, now);
    if (closing()) return;
    if (tls_->channel().state() == PskChannel::State::ended) return finish("the peer closed it");  // with our own word
    if (tls_->channel().state() == PskChannel::State::failed) station_.tls_failed(*this, now);
}

void Connection::flush(Instant now) {
    if (gone_ || blocked_) return;
    const auto flushed = tls_ ? tls_->flush(outbox_, socket_.fd, finishing_) : outbox_.flush(socket_.fd);
    waiting_.set(outbox_.held_bytes());
    switch (flushed) {
        case Outbox::Flush::broken: return station_.end(*this, errno_text(errno), now);
        case Outbox::Flush::blocked:
            blocked_ = true;
            blocked_at_ = now;
            break;
        case Outbox::Flush::sent: after_flush(now); break;
    }
    if (gone_) return;
    if (unsent_bytes() > unsent_bytes_max_) {
        return station_.refuse(*this, cat("it left ", unsent_bytes(), " bytes unread, more than ", unsent_bytes_max_),
                               now);
    }
    watch();
}

void Connection::after_flush(Instant now) {
    if (finishing_ && !lingering_) return station_.linger(*this, now);
    if (!paused_) return;
    session_->drained(now);
    // What it sent now is in the station's list again.
}

void Connection::watch() {
    if (gone_) return;
    const std::uint32_t wanted = (reading() ? read_events : EPOLLET) | (blocked_ ? EPOLLOUT : 0u);
    const bool look_again = missed_ && reading();
    if (wanted == watched_ && !look_again) return;
    watched_ = wanted;
    if (look_again) missed_ = false;
    // Also where nothing changes: what came while nobody listened is an edge now.
    const auto watching = station_.loop_.change(socket_.fd, wanted, *this);
    if (!watching) station_.refuse(*this, watching.error().context, std::chrono::steady_clock::now());
}

}  // namespace muster::rendezvous
