#include "worker_runtime/tcp/tcp_late_links.h"

#include <errno.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/base/log.h"
#include "worker_runtime/tcp/mesh/tcp_socket.h"

namespace muster::runtime {

namespace {

/// What an epoll event speaks of, beside a rank.
constexpr std::uint64_t door_mark = std::uint64_t{1} << 32;

std::vector<int> sockets_of(const TcpPeer& peer) {
    std::vector<int> sockets;
    for (const auto* one : {&peer.control, &peer.outgoing, &peer.incoming})
        if (one->valid()) sockets.push_back(one->get());
    return sockets;
}

}  // namespace

TcpLateLinks::TcpLateLinks(const GroupTerms& terms, const TcpMesh& mesh)
    : terms_(terms), mesh_(mesh), listeners_(mesh.door->listeners()), links_(mesh.peers.size()) {}

Result<std::unique_ptr<TcpLateLinks>> TcpLateLinks::over(const GroupTerms& terms, const TcpMesh& mesh) {
    std::unique_ptr<TcpLateLinks> links(new TcpLateLinks(terms, mesh));
    links->epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!links->epoll_.valid()) return error_from_errno(errno, "make an epoll descriptor");
    if (auto watched = links->watch(mesh.door->bell(), door_mark, EPOLLIN); !watched) return watched.error();
    mesh.door->reconsider(terms, *links);
    return links;
}

Result<void> TcpLateLinks::watch(const FileDescriptor& socket, std::uint64_t what, std::uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = what;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
        return error_from_errno(errno, "watch a connection");
    return {};
}

bool TcpLateLinks::is_stranger(int rank) const {
    return !std::binary_search(mesh_.partners.begin(), mesh_.partners.end(), rank);
}

std::vector<int> TcpLateLinks::strangers() const {
    const std::lock_guard lock(mutex_);
    std::vector<int> ranks;
    for (const auto& [rank, link] : kept_)
        if (link.peer.control.valid()) ranks.push_back(rank);
    return ranks;
}

Result<const TcpPeer*> TcpLateLinks::connect(int rank, Instant deadline) {
    std::unique_lock lock(mutex_);
    const bool calls = terms_.rank < rank;
    const auto over = [&] { return ended_ || with(rank) || (calls && !calling_.contains(rank)); };
    // Not all at once: not every clock can wait for the end of time.
    for (auto now = std::chrono::steady_clock::now(); !over() && now < deadline; now = std::chrono::steady_clock::now())
        changed_.wait_until(lock, std::min(deadline, now + 1h), over);
    if (with(rank)) return with(rank);
    if (ended_ || !over()) return Error{Errc::timed_out, "no connection"};
    calling_.insert(rank);
    lock.unlock();
    const auto alive = std::make_shared<ParentGroup>(
        [this] {
            const std::lock_guard again(mutex_);
            return ended_ ? Result<void>(*ended_) : Result<void>();
        },
        terms_.size);
    auto call = MeshBuilder::late(terms_, mesh_, rank, is_stranger(rank));
    auto added = call->build({deadline, alive});
    if (added) added = add(rank, std::move(call->mesh().peers[static_cast<std::size_t>(rank)]));
    lock.lock();
    if (!added) given_up_.push_back(std::move(call));
    calling_.erase(rank);
    changed_.notify_all();
    if (!added) return added.error();
    return with(rank);
}

void TcpLateLinks::end(const Error& why) {
    const std::lock_guard lock(mutex_);
    ended_ = why;
    changed_.notify_all();
    for (const auto& call : given_up_) call->tell(why);
}

/// From now on the link is whole.
Result<void> TcpLateLinks::add(int rank, TcpPeer peer) {
    const std::lock_guard lock(mutex_);
    peer.card = mesh_.card(rank);
    Link& link = kept_[rank];
    link.peer = std::move(peer);
    link.guard = std::make_unique<ForkGuard>(sockets_of(link.peer));
    links_[static_cast<std::size_t>(rank)] = &link.peer;
    changed_.notify_all();
    if (!link.peer.control.valid()) return {};
    return watch(link.peer.control.socket(), static_cast<std::uint64_t>(rank), EPOLLIN | EPOLLRDHUP | EPOLLET);
}

// ---- calls from lower ranks ----

TcpWelcome TcpLateLinks::welcome(const TcpHello& hello) {
    const int rank = static_cast<int>(hello.from);
    if (with(rank)) return {TcpWelcome::Kind::known};
    const bool partners_have = hello.purpose == TcpPurpose::control || hello.purpose == TcpPurpose::lane;
    if (partners_have && !is_stranger(rank)) return {TcpWelcome::Kind::known};
    switch (hello.purpose) {
        case TcpPurpose::control: return TcpWelcome::into(arriving_[rank].control);
        case TcpPurpose::transfer_up: return TcpWelcome::into(arriving_[rank].incoming);
        case TcpPurpose::transfer_down: return TcpWelcome::into(arriving_[rank].outgoing);
        case TcpPurpose::lane: break;
    }
    return {};
}

void TcpLateLinks::settle(TcpStream& place, TcpStream connection, const TcpHello& hello) {
    const int rank = static_cast<int>(hello.from);
    if (hello.purpose == TcpPurpose::control)
        tune_control_socket(connection.socket());
    else
        tune_data_socket(connection.socket());
    place = std::move(connection);
    TcpPeer& peer = arriving_[rank];
    if (!peer.incoming.valid() || !peer.outgoing.valid() || is_stranger(rank) != peer.control.valid()) return;
    if (auto added = add(rank, std::move(peer)); !added)
        log(LogLevel::warning, "communicator ", terms_.id, ", rank ", terms_.rank, ": ", added.error().context);
    arriving_.erase(rank);
}

Result<std::vector<int>> TcpLateLinks::serve() {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) {
        const auto what = events[static_cast<std::size_t>(i)].data.u64;
        if (what != door_mark)
            ranks.push_back(static_cast<int>(what));
        else if (auto served = mesh_.door->serve(terms_, *this, 0); !served)
            return served.error();
    }
    return ranks;
}

}  // namespace muster::runtime
