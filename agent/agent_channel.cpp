#include "agent/agent_channel.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <map>
#include <random>
#include <utility>

#include "rendezvous/base/datagram.h"
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

/// A rank that dies may have given one less than the others.
constexpr std::size_t snapshots_kept = 2;
/// Of all other ranks together: those of eight, whose node is larger than the next one.
constexpr std::size_t copies_kept = 16;

/// Between two looks at a connection that cannot be taken because descriptors have run out.
constexpr Duration accept_pause = 200ms;

}  // namespace

class AgentChannel::Body : public std::enable_shared_from_this<Body> {
  public:
    Body(asio::io_context& loop, std::string address, FileDescriptor socket)
        : address_(std::move(address)), listener_(loop, socket.release()), worker_(loop), accept_timer_(loop) {}

    void wait_for_worker();
    void hang_up();
    void send(const local::Message& message);
    /// What a worker that has ended had said before; its end may have been heard first.
    void read_the_rest();

    bool closed = false;
    std::string address_;
    WorkerFacts facts_;
    std::map<local::GiftKind, std::vector<Gift>> gifts_;  // the newest last
    std::size_t old_copies_ = 0;                          // so many of the first are of a round before
    asio::posix::stream_descriptor listener_;
    asio::posix::stream_descriptor worker_;
    asio::steady_timer accept_timer_;

  private:
    void accept();
    void wait_for_message();
    void read();
    void read_some();
    /// False when the worker broke the protocol.
    bool take(Datagram datagram);
    void note(const local::Message& message);
    void keep(const local::Give& give, FileDescriptor memory);
    void offer(local::GiftKind kind);
    std::size_t snapshots_given_ = 0;  // in this round
};

void AgentChannel::Body::wait_for_worker() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](boost::system::error_code failure) {
                             if (failure || self->closed) return;
                             self->accept();
                         });
}

void AgentChannel::Body::accept() {
    FileDescriptor socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool refused = !socket.valid() && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
    if (!refused) {
        wait_for_worker();
    } else {
        // EMFILE, say: the connection stays in the queue, and the listener readable. Not again at once.
        accept_timer_.expires_after(accept_pause);
        accept_timer_.async_wait([self = shared_from_this()](boost::system::error_code failure) {
            if (!failure && !self->closed) self->wait_for_worker();
        });
    }
    // One worker, one connection: a second one (a forked data loader) is closed at once. So are strangers.
    if (!socket.valid() || worker_.is_open() || !is_our_user(socket.get())) return;
    boost::system::error_code failure;
    worker_.assign(socket.get(), failure);
    if (failure) return;
    static_cast<void>(socket.release());
    facts_ = {};
    facts_.connected = true;
    wait_for_message();
}

void AgentChannel::Body::wait_for_message() {
    worker_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [self = shared_from_this()](boost::system::error_code failure) {
                           if (!failure && !self->closed) self->read();
                       });
}

void AgentChannel::Body::read() {
    read_some();
    if (worker_.is_open()) wait_for_message();
}

void AgentChannel::Body::read_the_rest() {
    if (worker_.is_open()) read_some();
}

void AgentChannel::Body::read_some() {
    // A worker that never stops talking must not keep the loop: some datagrams, then everybody else's turn.
    for (int i = 0; i < 64; ++i) {
        auto datagram = receive_datagram(worker_.native_handle(), local::datagram_bytes_max, 1);
        if (!datagram && errno == EAGAIN) return;
        if (!datagram || datagram->bytes.empty()) return hang_up();
        if (datagram->cut || !take(*std::move(datagram))) {
            log(LogLevel::warning, "the worker at ", address_, " broke the channel's rules; its channel is closed");
            return hang_up();
        }
    }
}

bool AgentChannel::Body::take(Datagram datagram) {
    const auto message = local::decode(datagram.bytes, local::Sender::worker);
    if (message.has_error()) return message.error().code == Errc::unsupported;
    if (const auto* give = std::get_if<local::Give>(&message.value())) {
        if (datagram.descriptors.empty()) return false;
        keep(*give, std::move(datagram.descriptors.front()));
    }
    if (std::holds_alternative<local::Hello>(message.value())) {
        offer(local::GiftKind::snapshot);
        offer(local::GiftKind::copy);
    }
    note(message.value());
    return true;
}

void AgentChannel::Body::keep(const local::Give& give, FileDescriptor memory) {
    auto& gifts = gifts_[give.kind];
    const auto drop = [&](std::size_t at) {
        gifts.erase(gifts.begin() + static_cast<std::ptrdiff_t>(at));
        if (give.kind == local::GiftKind::copy && at < old_copies_) --old_copies_;
    };
    if (give.kind == local::GiftKind::copy) {
        const auto same_rank = [&](const Gift& gift) { return gift.rank == give.rank; };
        const auto first = std::find_if(gifts.begin(), gifts.end(), same_rank);
        if (static_cast<std::size_t>(std::count_if(first, gifts.end(), same_rank)) == snapshots_kept)
            drop(static_cast<std::size_t>(first - gifts.begin()));
        if (gifts.size() == copies_kept) drop(0);
    } else if (gifts.size() == (give.kind == local::GiftKind::snapshot ? snapshots_kept : 1)) {
        drop(0);
    }
    gifts.push_back({.memory = std::move(memory),
                     .size_bytes = give.size_bytes,
                     .step = give.step,
                     .rank = give.rank,
                     .directory = give.directory});
    // Workers give a second one when all have the first: nobody goes back to a round before this one.
    if (give.kind != local::GiftKind::snapshot || ++snapshots_given_ != snapshots_kept) return;
    auto& copies = gifts_[local::GiftKind::copy];
    copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(old_copies_));
    old_copies_ = 0;
}

void AgentChannel::Body::offer(local::GiftKind kind) {
    for (const auto& gift : gifts_[kind]) {
        const int memory = gift.memory.get();
        const local::Offer offer{kind, gift.size_bytes};
        if (send_datagram(worker_.native_handle(), local::encode(offer), {&memory, 1}) != 0)
            log(LogLevel::warning, "a snapshot did not reach the worker at ", address_);
    }
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
    if (send_datagram(worker_.native_handle(), local::encode(message)) != 0)
        log(LogLevel::info, "a ", local::name(message), " did not reach the worker at ", address_);
}

Result<std::unique_ptr<AgentChannel>> AgentChannel::open(asio::io_context& loop, std::uint32_t local_rank,
                                                         std::vector<Gift> snapshots, std::vector<Gift> copies) {
    std::string address = fresh_address(local_rank);
    auto socket = listen_at(address);
    if (socket.has_error()) return socket.error();
    auto body = std::make_shared<Body>(loop, std::move(address), std::move(socket.value()));
    body->gifts_[local::GiftKind::snapshot] = std::move(snapshots);
    body->old_copies_ = copies.size();
    body->gifts_[local::GiftKind::copy] = std::move(copies);
    return std::unique_ptr<AgentChannel>(new AgentChannel(std::move(body)));
}

AgentChannel::AgentChannel(std::shared_ptr<Body> body) : body_(std::move(body)) {
    body_->wait_for_worker();
}

AgentChannel::~AgentChannel() {
    body_->closed = true;
    boost::system::error_code ignored;
    body_->listener_.close(ignored);
    body_->accept_timer_.cancel();
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
    const auto& gifts = body_->gifts_[kind];
    return gifts.empty() ? -1 : gifts.back().memory.get();
}

std::vector<Gift> AgentChannel::take_snapshots() {
    body_->read_the_rest();
    return std::exchange(body_->gifts_[local::GiftKind::snapshot], {});
}

std::vector<Gift> AgentChannel::take_copies() {
    return std::exchange(body_->gifts_[local::GiftKind::copy], {});
}

}  // namespace muster::agent
