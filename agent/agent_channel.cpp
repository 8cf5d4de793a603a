#include "agent/agent_channel.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/log.h"
#include "rendezvous/wire/local/codec.h"

namespace muster::agent {

namespace asio = boost::asio;

namespace {

/// Unique on this machine, and not to be guessed before it is read from the worker's environment.
std::string fresh_address(std::uint32_t local_rank) {
    std::random_device random;
    return cat("@muster/", ::getpid(), '/', random(), random(), '/', local_rank);
}

Result<FileDescriptor> listen_at(const std::string& address) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path + 1, sizeof name.sun_path - 2, 1);  // the first byte stays zero: an abstract address
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) return error_from_errno(errno, "make a worker's channel");
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0 || ::listen(socket.get(), 4) != 0)
        return error_from_errno(errno, cat("listen for a worker at ", address));
    return socket;
}

bool is_our_user(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

struct Datagram {
    enum class State { received, nothing_yet, ended, broken };
    State state = State::nothing_yet;
    std::string bytes;
    FileDescriptor descriptor;
};

/// One datagram with at most one descriptor beside it; more, or a longer one, is broken.
Datagram receive(int socket) {
    std::array<char, local::datagram_bytes_max> bytes;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
    iovec piece{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    Datagram datagram;
    const auto size = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0) {
        const bool later = errno == EAGAIN || errno == EINTR;
        datagram.state = later ? Datagram::State::nothing_yet : Datagram::State::ended;
        return datagram;
    }
    const cmsghdr* part = CMSG_FIRSTHDR(&header);
    if (part != nullptr && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(part), sizeof descriptor);
        datagram.descriptor = FileDescriptor(descriptor);
    }
    const bool cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    datagram.state = cut ? Datagram::State::broken : size == 0 ? Datagram::State::ended : Datagram::State::received;
    datagram.bytes.assign(bytes.data(), static_cast<std::size_t>(size));
    return datagram;
}

}  // namespace

class AgentChannel::Body : public std::enable_shared_from_this<Body> {
  public:
    Body(asio::io_context& loop, std::string address, FileDescriptor socket)
        : address_(std::move(address)), listener_(loop, socket.release()), worker_(loop) {}

    void wait_for_worker();
    void hang_up();
    void send(const local::Message& message);

    AgentChannel* owner = nullptr;  // null once the channel is closed
    std::string address_;
    WorkerFacts facts_;
    std::map<local::GiftKind, FileDescriptor> gifts_;
    asio::posix::stream_descriptor listener_;
    asio::posix::stream_descriptor worker_;

  private:
    void accept();
    void wait_for_message();
    void read();
    /// False when the worker broke the protocol.
    bool take(Datagram datagram);
    void note(const local::Message& message);
};

void AgentChannel::Body::wait_for_worker() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](boost::system::error_code failure) {
                             if (failure || self->owner == nullptr) return;
                             self->accept();
                             self->wait_for_worker();
                         });
}

void AgentChannel::Body::accept() {
    FileDescriptor socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // One worker, one connection: a second one (a forked data loader) is closed at once. So are strangers.
    if (socket.get() < 0 || worker_.is_open() || !is_our_user(socket.get())) return;
    worker_.assign(socket.release());
    facts_ = {};
    facts_.connected = true;
    wait_for_message();
}

void AgentChannel::Body::wait_for_message() {
    worker_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [self = shared_from_this()](boost::system::error_code failure) {
                           if (!failure && self->owner != nullptr) self->read();
                       });
}

void AgentChannel::Body::read() {
    // A worker that never stops talking must not keep the loop: some datagrams, then everybody else's turn.
    for (int i = 0; i < 64 && owner != nullptr; ++i) {
        Datagram datagram = receive(worker_.native_handle());
        if (datagram.state == Datagram::State::nothing_yet) break;
        if (datagram.state == Datagram::State::ended) return hang_up();
        if (datagram.state == Datagram::State::broken || !take(std::move(datagram))) {
            log(LogLevel::warning, "the worker at ", address_, " broke the channel's rules; its channel is closed");
            return hang_up();
        }
    }
    if (owner != nullptr) wait_for_message();
}

bool AgentChannel::Body::take(Datagram datagram) {
    const auto message = local::decode(datagram.bytes, local::Sender::worker);
    if (message.has_error()) return message.error().code == Errc::unsupported;
    if (const auto* give = std::get_if<local::Give>(&message.value())) {
        if (datagram.descriptor.get() < 0) return false;
        gifts_[give->kind] = std::move(datagram.descriptor);
    }
    note(message.value());
    if (owner != nullptr && owner->on_message) owner->on_message(message.value());
    return true;
}

void AgentChannel::Body::note(const local::Message& message) {
    if (const auto* hello = std::get_if<local::Hello>(&message))
        facts_.runtime = hello->runtime;
    else if (const auto* progress = std::get_if<local::Progress>(&message))
        facts_.step = progress->step;
    else if (const auto* section = std::get_if<local::Section>(&message))
        facts_.section = section->name;
}

void AgentChannel::Body::hang_up() {
    boost::system::error_code ignored;
    worker_.close(ignored);
    facts_.connected = false;
}

void AgentChannel::Body::send(const local::Message& message) {
    if (!worker_.is_open()) return;
    const std::string bytes = local::encode(message);
    if (::send(worker_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        log(LogLevel::info, "a ", local::name(message), " did not reach the worker at ", address_);
}

Result<std::unique_ptr<AgentChannel>> AgentChannel::open(asio::io_context& loop, std::uint32_t local_rank) {
    std::string address = fresh_address(local_rank);
    auto socket = listen_at(address);
    if (socket.has_error()) return socket.error();
    auto body = std::make_shared<Body>(loop, std::move(address), std::move(socket.value()));
    return std::unique_ptr<AgentChannel>(new AgentChannel(std::move(body)));
}

AgentChannel::AgentChannel(std::shared_ptr<Body> body) : body_(std::move(body)) {
    body_->owner = this;
    body_->wait_for_worker();
}

AgentChannel::~AgentChannel() {
    body_->owner = nullptr;
    boost::system::error_code ignored;
    body_->listener_.close(ignored);
    body_->hang_up();
    body_->gifts_.clear();
}

const std::string& AgentChannel::address() const {
    return body_->address_;
}

void AgentChannel::send(const local::Message& message) {
    body_->send(message);
}

const WorkerFacts& AgentChannel::facts() const {
    return body_->facts_;
}

int AgentChannel::gift(local::GiftKind kind) const {
    const auto found = body_->gifts_.find(kind);
    return found == body_->gifts_.end() ? -1 : found->second.get();
}

}  // namespace muster::agent
