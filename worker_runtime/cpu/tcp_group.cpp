#include "worker_runtime/cpu/tcp_group.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/cpu/poll_timeout.h"
#include "worker_runtime/cpu/tcp_limits.h"

namespace muster::runtime {

namespace {

/// The one frame of a control connection: a failure's code, the collective that was given up, and text; a rank that
/// leaves sends `leaving` and no text.
constexpr std::uint8_t leaving = 0xff;
constexpr std::size_t frame_head_bytes = 11;

std::string frame(std::uint8_t code, std::uint64_t unfinished, std::string_view text) {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number(code);
    writer.number(unfinished);
    writer.blob<std::uint16_t>(text.substr(0, failure_text_max));
    return bytes;
}

std::vector<int> sockets_of(const TcpMesh& mesh) {
    std::vector<int> sockets;
    for (const auto& peer : mesh.peers) {
        for (const auto* one : {&peer.control, &peer.outgoing, &peer.incoming})
            if (one->valid()) sockets.push_back(one->get());
        for (const auto& stripes : peer.lanes)
            for (const auto& stripe : stripes) sockets.push_back(stripe.get());
    }
    return sockets;
}

/// What the network, not the peer, ended the connection with.
bool is_silence(int failure) {
    return failure == ETIMEDOUT || failure == EHOSTUNREACH || failure == ENETUNREACH || failure == ENETDOWN;
}

}  // namespace

TcpGroup::TcpGroup(int rank, std::string id, TcpMesh mesh, FileDescriptor wake)
    : rank_(rank),
      id_(std::move(id)),
      mesh_(std::move(mesh)),
      wake_(std::move(wake)),
      ranks_here_(static_cast<int>(
          std::count_if(mesh_.peers.begin(), mesh_.peers.end(),
                        [this](const TcpPeer& one) { return one.card.host == peer(rank_).card.host; }))),
      fork_guard_(sockets_of(mesh_)) {}

TcpGroup::~TcpGroup() {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    const auto bytes = frame(leaving, 0, {});
    for (const auto& one : mesh_.peers) {
        if (one.control.valid()) (void)::send(one.control.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
}

Duration TcpGroup::spin(Patience patience) const {
    const bool crowded = static_cast<unsigned>(ranks_here_) > std::max(1u, std::thread::hardware_concurrency());
    return patience == Patience::eager && !crowded ? spin_limit : Duration::zero();
}

std::string TcpGroup::who(int rank) const {
    return describe_rank(rank, peer(rank).card);
}

Error TcpGroup::fail(Errc code, const std::string& text, std::uint64_t unfinished) {
    const std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    failure_ = Error{code, text};
    unfinished_ = unfinished;
    // These connections carry nothing else, so the frame fits; a peer that cannot be told any more needs no telling.
    const auto bytes = frame(static_cast<std::uint8_t>(code), unfinished, text);
    for (const auto& one : mesh_.peers) {
        if (one.control.valid()) (void)::send(one.control.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    return *failure_;
}

Error TcpGroup::failure() const {
    const std::lock_guard lock(mutex_);
    MUSTER_CHECK(failure_.has_value(), id_);
    return *failure_;
}

bool TcpGroup::gave_up(std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    return failure_ && unfinished_ == number;
}

/// Peeks, because several threads may listen, and each must hear it.
TcpGroup::News TcpGroup::listen(int rank) const {
    std::array<char, frame_head_bytes + failure_text_max> bytes;
    const auto got = ::recv(peer(rank).control.get(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return {};
        return {.what = is_silence(errno) ? Told::silent : Told::ended, .text = std::strerror(errno)};
    }
    if (got == 0) return {.what = Told::ended};
    ByteReader reader({bytes.data(), static_cast<std::size_t>(got)});
    const auto code = reader.number<std::uint8_t>();
    const auto unfinished = reader.number<std::uint64_t>();
    const auto text = reader.blob<std::uint16_t>(failure_text_max);
    if (!reader.ok()) return {};  // the rest is on its way
    if (code == leaving) return {.what = Told::left};
    return {.what = Told::failed,
            .code = code <= static_cast<std::uint8_t>(Errc::io) ? static_cast<Errc>(code) : Errc::bad_frame,
            .unfinished = unfinished,
            .text = std::string(text)};
}

Result<bool> TcpGroup::take(int rank, const News& news) {
    if (news.what == Told::failed) return fail(news.code, news.text, news.unfinished);
    if (news.what == Told::silent)
        return fail(Errc::timed_out, cat(who(rank), " cannot be reached any more: ", news.text));
    return news.what != Told::nothing;
}

Result<bool> TcpGroup::hear(int rank) {
    return take(rank, listen(rank));
}

Result<bool> TcpGroup::hear_or_lose(int rank) {
    const News news = listen(rank);
    if (news.what == Told::ended) return fail(Errc::peer_closed, cat(who(rank), " died"));
    return take(rank, news);
}

Error TcpGroup::lost(int rank, int failure, const std::string& doing) {
    pollfd control{peer(rank).control.get(), POLLIN, 0};
    const auto now = std::chrono::steady_clock::now();
    ::poll(&control, 1, poll_timeout_ms(now + last_words_timeout, now));
    const News news = listen(rank);
    switch (news.what) {
        case Told::failed: return fail(news.code, news.text, news.unfinished);
        case Told::left:
            return fail(Errc::peer_closed, cat(who(rank), " closed communicator ", id_, " before ", doing));
        case Told::silent:
            return fail(Errc::timed_out, cat(who(rank), " cannot be reached any more in ", doing, ": ", news.text));
        case Told::ended:
        case Told::nothing: break;
    }
    if (is_silence(failure)) {
        return fail(Errc::timed_out,
                    cat(who(rank), " cannot be reached any more in ", doing, ": ", std::strerror(failure)));
    }
    if (news.what == Told::ended) return fail(Errc::peer_closed, cat(who(rank), " died in ", doing));
    return fail(Errc::peer_closed, cat("the connection with ", who(rank), " broke in ", doing, ": ",
                                       failure == 0 ? "closed" : std::strerror(failure)));
}

}  // namespace muster::runtime
