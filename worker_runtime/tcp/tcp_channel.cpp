#include "worker_runtime/tcp/tcp_channel.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/transport/poll_timeout.h"

namespace muster::runtime {

/// One message: both sides send a header, and one of them data.
struct TcpChannel::Progress {
    const Operation& operation;
    bool sends;
    HeaderBytes own_header;
    HeaderBytes their_header{};
    std::size_t header_sent = 0;
    std::size_t header_received = 0;
    std::span<std::byte> data;  ///< The part that has not moved yet.

    [[nodiscard]] std::span<std::byte> outgoing_header() { return std::span(own_header).subspan(header_sent); }
    [[nodiscard]] bool writes() const { return header_sent < sizeof(HeaderBytes) || (sends && !data.empty()); }
    [[nodiscard]] bool reads() const { return header_received < sizeof(HeaderBytes) || (!sends && !data.empty()); }
};

namespace {

/// The kernel takes at most 2 GiB in one call; less lets other threads' deadlines be looked at.
constexpr std::size_t call_bytes_max = 16u << 20;

}  // namespace

std::string TcpChannel::doing(const Operation& operation) const {
    return cat("message ", messages_, " (", describe(operation), ")");
}

Result<void> TcpChannel::move(const Operation& operation, const RunTerms& terms) {
    ++messages_;
    const bool sends = operation.kind == OperationKind::send;
    auto* const memory = static_cast<std::byte*>(sends ? const_cast<void*>(operation.input) : operation.output);
    Progress progress{.operation = operation,
                      .sends = sends,
                      .own_header = encode(header_of(operation, messages_)),
                      .data = {memory, operation.count * size_of(operation.type)}};
    if (!socket_) {
        const auto link = group_.link(peer_, terms);
        if (!link && link.error().code == Errc::timed_out) return late(progress);
        if (!link) return link.error();
        socket_ = sends ? &(*link)->outgoing : &(*link)->incoming;
    }
    while (progress.writes() || progress.reads()) {
        const auto sent = MUSTER_TRY(send_some(progress));
        const auto received = MUSTER_TRY(receive_some(progress));
        const bool moved = sent || received;
        const bool over = !progress.writes() && !progress.reads();
        if (over || (moved && std::chrono::steady_clock::now() < terms.deadline)) continue;
        if (auto waited = wait(progress, terms); !waited) return waited;
    }
    return {};
}

Result<Incoming> TcpChannel::incoming() const {
    if (!group_.is_whole())
        return Error{Errc::invalid_argument,
                     cat("receive from any rank: in a TCP group of more than ", whole_mesh_ranks_max,
                         " ranks two ranks connect with their first message; name the rank to receive from")};
    const auto& stream = group_.peer(peer_).incoming;
    if (stream.holds_bytes()) return Incoming::message;
    char byte = 0;
    const auto got = ::recv(stream.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return Incoming::message;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Incoming::nothing;
    return group_.has_left(peer_) ? Incoming::left : Incoming::message;
}

Result<bool> TcpChannel::send_some(Progress& progress) {
    if (!progress.writes()) return false;
    auto header = progress.outgoing_header();
    const auto data =
        progress.sends ? progress.data.first(std::min(progress.data.size(), call_bytes_max)) : std::span<std::byte>();
    const std::array<iovec, 2> parts{{{header.data(), header.size()}, {data.data(), data.size()}}};
    const auto sent = socket_->send(parts);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (sent < 0) return group_.lost(peer_, errno, doing(progress.operation));
    const auto of_header = std::min(static_cast<std::size_t>(sent), header.size());
    progress.header_sent += of_header;
    if (progress.sends) progress.data = progress.data.subspan(static_cast<std::size_t>(sent) - of_header);
    return true;
}

/// Data is not received before the header has been compared.
Result<bool> TcpChannel::receive_some(Progress& progress) {
    if (!progress.reads()) return false;
    const bool in_header = progress.header_received < sizeof(HeaderBytes);
    const auto target = in_header ? std::span(progress.their_header).subspan(progress.header_received)
                                  : progress.data.first(std::min(progress.data.size(), call_bytes_max));
    const iovec part{target.data(), target.size()};
    const auto got = socket_->receive({&part, 1});
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) return group_.lost(peer_, got < 0 ? errno : 0, doing(progress.operation));
    if (!in_header) {
        progress.data = progress.data.subspan(static_cast<std::size_t>(got));
        return true;
    }
    progress.header_received += static_cast<std::size_t>(got);
    if (progress.header_received < sizeof(HeaderBytes)) return true;
    if (auto compared = compare(progress); !compared) return compared.error();
    return true;
}

Result<void> TcpChannel::compare(const Progress& progress) {
    CollectiveHeader theirs;
    if (!decode(progress.their_header, theirs)) {
        return group_.fail(Errc::bad_frame,
                           cat(group_.who(peer_), " sent an invalid header in ", doing(progress.operation),
                               ": use the same version of muster on all nodes"));
    }
    const Operation& ours = progress.operation;
    if (theirs.type == ours.type && theirs.count == ours.count && theirs.tag == ours.tag) return {};
    const auto words = [](int rank, std::string_view verb, const CollectiveHeader& header, const TcpGroup& group) {
        return cat(group.who(rank), " ", verb, " ", name(header.type), " x ", header.count,
                   header.tag != 0 ? cat(" tagged ", header.tag) : std::string());
    };
    const auto own = header_of(ours, messages_);
    const int rank = group_.rank();
    const auto sender = words(progress.sends ? rank : peer_, "sends", progress.sends ? own : theirs, group_);
    const auto receiver = words(progress.sends ? peer_ : rank, "receives", progress.sends ? theirs : own, group_);
    return group_.fail(Errc::invalid_argument, cat("ranks differ in message ", messages_, " of communicator ",
                                                   group_.id(), ": ", sender, ", ", receiver));
}

// ---- waiting ----

/// The message's connection, the group's end, and what the peer says, or everybody.
struct TcpChannel::Ears {
    std::vector<pollfd> polled;
    std::vector<int> ranks;  ///< Ranks of the control connections behind the first two.
};

TcpChannel::Ears TcpChannel::ears(short events, bool to_all) const {
    Ears ears{.polled = {{socket_->get(), events, 0}, {group_.wake().get(), POLLIN, 0}}, .ranks = {}};
    for (const int rank : to_all ? group_.linked() : std::vector{peer_}) {
        if (ended_.contains(rank)) continue;
        ears.polled.push_back({group_.control(rank).get(), POLLIN, 0});
        ears.ranks.push_back(rank);
    }
    return ears;
}

/// Hears who has spoken. True when somebody has for the last time.
Result<bool> TcpChannel::listen(const Ears& ears) {
    const auto ended_before = ended_.size();
    for (std::size_t i = 0; i < ears.ranks.size(); ++i) {
        if (ears.polled[i + 2].revents == 0) continue;
        if (MUSTER_TRY(group_.hear(ears.ranks[i]))) ended_.insert(ears.ranks[i]);
    }
    return ended_.size() != ended_before;
}

/// Whoever waits for long says so, and listens to all ranks: any of them may ask.
Result<void> TcpChannel::wait(const Progress& progress, const RunTerms& terms) {
    const auto began = std::chrono::steady_clock::now();
    const auto events = static_cast<short>((progress.reads() ? POLLIN : 0) | (progress.writes() ? POLLOUT : 0));
    const Duration spin = group_.spin(terms.patience);
    bool told = false;
    auto heard = ears(events, told);
    for (auto now = began;; now = std::chrono::steady_clock::now()) {
        if (now >= terms.deadline) return late(progress);
        const bool spinning = now - began < spin;
        if (!told && now - began >= wait_is_long_after) {
            told = true;
            group_.waits_for(this, {peer_});
            heard = ears(events, told);
        }
        const Instant until = told ? terms.deadline : std::min(terms.deadline, began + wait_is_long_after);
        const int ready = ::poll(heard.polled.data(), heard.polled.size(), spinning ? 0 : poll_timeout_ms(until, now));
        if (ready < 0 && errno != EINTR) return error_from_errno(errno, "wait for a connection");
        // What came before the news of a failure may be all that this message needs.
        if (heard.polled[0].revents != 0) break;
        if (heard.polled[1].revents != 0) return group_.failure();
        if (MUSTER_TRY(listen(heard))) heard = ears(events, told);
        if (spinning) ::sched_yield();
    }
    if (told) group_.waits_for(this, {});
    return {};
}

Error TcpChannel::late(const Progress& progress) {
    group_.waits_for(this, {peer_});
    const auto failed_ranks = MUSTER_TRY(group_.trace({peer_}, 0));
    const bool came = failed_ranks.ranks == std::vector{peer_} && progress.header_received == sizeof(HeaderBytes);
    return group_.fail(Errc::timed_out, cat(doing(progress.operation), " on communicator ", group_.id(),
                                            " timed out: ", failed_ranks.names,
                                            came ? " reached it, but did not finish it" : " did not reach it"));
}

}  // namespace muster::runtime
