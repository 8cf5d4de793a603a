#include "worker_runtime/tcp/mesh/tcp_call.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/mesh/tcp_socket.h"

namespace muster::runtime {

bool receive_more(const FileDescriptor& socket, std::span<std::byte> bytes, std::size_t& size) {
    const auto got = ::recv(socket.get(), bytes.data() + size, bytes.size() - size, 0);
    if (got > 0) size += static_cast<std::size_t>(got);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

TcpPair at_place(TcpPair pair, const SocketAddress& at) {
    // Which of its interfaces leads there is each host's own matter.
    const auto address = at.numeric();
    pair.at = {address.substr(0, address.find('%')), at.port()};
    return pair;
}

TcpStream stream_of(FileDescriptor socket, TcpEnd end, const TcpHelloBytes& hello, const TcpAnswerBytes& answer,
                    const TcpPair& pair) {
    if (pair.security.mode() != WireMode::encrypted) return TcpStream(std::move(socket));
    const auto other = end == TcpEnd::caller ? TcpEnd::called : TcpEnd::caller;
    return TcpStream(std::move(socket), std::make_unique<TcpRecords>(record_secret(end, hello, answer, pair),
                                                                     record_secret(other, hello, answer, pair)));
}

Result<void> TcpCall::dial(Instant now) {
    int failure = 0;
    socket_ = begin_connect(to_, failure);
    if (failure == EMFILE || failure == ENFILE) return Error{Errc::limit_exceeded, "no file descriptor is left"};
    if (failure != 0) return fail(failure, now), Result<void>();
    if (trouble_.empty()) trouble_ = "no answer";
    state_ = State::connecting;
    due_ = no_deadline;
    answer_size_ = 0;
    return {};
}

short TcpCall::events() const {
    return state_ == State::connecting ? POLLOUT : POLLIN;
}

/// Refused is final: whoever has published a port listens there until its group stands.
void TcpCall::fail(int failure, Instant now) {
    if (failure == ECONNREFUSED) return give_up(errno_text(failure));
    trouble_ = errno_text(failure);
    socket_.reset();
    state_ = State::waiting;
    due_ = now + connect_retry_delay;
}

void TcpCall::give_up(std::string_view why) {
    trouble_ = why;
    socket_.reset();
    state_ = State::hopeless;
    due_ = no_deadline;
}

void TcpCall::serve(Instant now) {
    if (state_ == State::connecting) {
        if (const int failure = connect_failure(socket_); failure != 0) return fail(failure, now);
        const auto sent = ::send(socket_.get(), words_.data(), words_.size(), MSG_NOSIGNAL);
        // The first bytes of a connection always fit.
        if (sent != static_cast<ssize_t>(words_.size())) return fail(ECONNRESET, now);
        state_ = State::greeted;
        trouble_ = "connected, but no answer to the greeting";
        return;
    }
    if (!receive_more(socket_, answer_, answer_size_)) return fail(ECONNRESET, now);
    if (answer_size_ < answer_.size()) return;
    if (!is_answer_to(words_, pair_, answer_)) return give_up("another program answered, which is not this rank");
    state_ = State::established;
}

}  // namespace muster::runtime
