#include "rendezvous/servers/relay_upstream.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/sockets/tcp_options.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t read_buffer_bytes = 256 * 1024;

}  // namespace

RelayUpstream::RelayUpstream(EventLoop& loop, Duration unread_max, std::unique_ptr<TlsStream> tls,
                             std::shared_ptr<MemoryBudget> memory, Events events)
    : loop_(loop),
      unread_max_(unread_max),
      events_(std::move(events)),
      tls_(std::move(tls)),
      held_(std::move(memory)),
      buffer_(read_buffer_bytes),
      decrypted_(tls_ ? read_buffer_bytes + TlsStream::plain_bytes_more : 0) {}

RelayUpstream::~RelayUpstream() {
    close();
}

Result<void> RelayUpstream::dial(const SocketAddress& store, Instant deadline) {
    dial_deadline_ = deadline;
    FileDescriptor socket(::socket(store.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (!socket.valid()) return error_from_errno(errno, "open a socket");
    tune_stream(socket.get(), unread_max_);
    if (::connect(socket.get(), store.data(), store.size()) != 0 && errno != EINPROGRESS)
        return error_from_errno(errno, "connect");
    watched_ = EPOLLIN | EPOLLOUT;
    if (auto watching = loop_.add(socket.get(), watched_, *this); !watching) return watching;
    socket_ = std::move(socket);
    outbox_.push(c10d::relay_handshake());
    return {};
}

Instant RelayUpstream::elapsed(Instant now) {
    if (is_open()) return no_deadline;
    if (dial_deadline_ > now) return dial_deadline_;
    end(is_connected_ ? "the host did not answer TLS" : "the host did not answer");
    return no_deadline;
}

bool RelayUpstream::is_open() const {
    return is_connected_ && (!tls_ || tls_->channel().state() == PskChannel::State::open);
}

void RelayUpstream::send(std::uint32_t client, std::string_view bytes) {
    std::string header;
    c10d::append_relay_header(header, client, static_cast<std::uint32_t>(bytes.size()));
    outbox_.push(std::string_view(header));
    outbox_.push(bytes);
    held_.set(outbox_.held_bytes());
}

void RelayUpstream::flush() {
    if (!socket_.valid() || !is_connected_ || unsent_bytes() == 0) return;
    const auto flushed = tls_ ? tls_->flush(outbox_, socket_.get(), false) : outbox_.flush(socket_.get());
    held_.set(outbox_.held_bytes());
    if (flushed == Outbox::Flush::broken) return end(errno_text(errno));
    is_blocked_ = flushed == Outbox::Flush::blocked;
    watch();
    if (outbox_.empty()) events_.drained();
}

void RelayUpstream::close() {
    if (!socket_.valid()) return;
    loop_.remove(socket_.get(), *this);
    socket_.reset();
}

void RelayUpstream::ready(std::uint32_t events, Instant) {
    if (!is_connected_) {
        int failure = 0;
        socklen_t size = sizeof failure;
        ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
        if (failure != 0) return end(errno_text(failure));
        is_connected_ = true;
    }
    if ((events & EPOLLOUT) != 0) flush();
    if (socket_.valid() && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
}

void RelayUpstream::receive() {
    const auto count = ::recv(socket_.get(), buffer_.data(), buffer_.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return end(count == 0 ? "the store closed it" : errno_text(errno));
    std::string_view bytes(buffer_.data(), static_cast<std::size_t>(count));
    if (tls_) bytes = tls_->decrypt(bytes, decrypted_);
    while (const auto piece = reader_.next(bytes)) events_.piece(*piece);
    if (tls_) answer_tls();
}

/// Sends the handshake's answers and what waited for its end, and ends what the store has ended.
void RelayUpstream::answer_tls() {
    flush();
    const auto& channel = tls_->channel();
    if (!socket_.valid() || channel.state() == PskChannel::State::shaking || is_open()) return;
    if (channel.state() == PskChannel::State::ended) return end("the store closed it");
    const bool other_key = channel.failure() == PskChannel::Failure::wrong_key;
    const bool no_door = channel.failure() == PskChannel::Failure::no_key;
    end(no_door ? std::string("it speaks no TLS: give all nodes of the job the same --store-door and --wire-security")
        : other_key ? std::string("it has another key of the round")
                    : cat("TLS failed: ", channel.why()));
}

void RelayUpstream::end(const std::string& why) {
    close();
    events_.ended(why);
}

void RelayUpstream::watch() {
    const std::uint32_t wanted = EPOLLIN | (is_blocked_ ? EPOLLOUT : 0U);
    if (wanted == watched_) return;
    watched_ = wanted;
    if (auto watching = loop_.change(socket_.get(), wanted, *this); !watching) end(watching.error().context);
}

}  // namespace muster::rendezvous
