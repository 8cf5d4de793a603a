#include "worker_runtime/cpu/tcp_mesh_builder.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/cpu/poll_timeout.h"
#include "worker_runtime/cpu/tcp_limits.h"
#include "worker_runtime/cpu/tcp_socket.h"

namespace muster::runtime {

namespace {

/// For the answer of a host, once this rank knows that the group will not stand.
constexpr int last_look_ms = 200;

Instant clock_now() {
    return std::chrono::steady_clock::now();
}

}  // namespace

MeshBuilder::MeshBuilder(const GroupTerms& terms, TcpMesh mesh, FileDescriptor listener)
    : terms_(terms),
      mesh_(std::move(mesh)),
      listener_(std::move(listener)),
      probes_(static_cast<std::size_t>(terms.rank)) {}

Result<TcpMesh> MeshBuilder::build(Instant deadline) {
    if (auto expected = expect_connections(); !expected) return expected.error();
    while (missing_ > 0) {
        const auto now = clock_now();
        if (now >= deadline) return Error{Errc::timed_out, absentees()};
        if (auto begun = begin_tries(now); !begun) return with_others_gone(begun.error());
        if (auto served = wait_and_serve(deadline); !served) return with_others_gone(served.error());
    }
    return std::move(mesh_);
}

Result<void> MeshBuilder::expect_connections() {
    for (int peer = 0; peer < terms_.size; ++peer) {
        const auto address = SocketAddress::from_numeric(card(peer).address, card(peer).port);
        if (!address) return Error{Errc::bad_frame, cat(who(peer), " has published what is no address")};
        addresses_.push_back(*address);
        if (peer == terms_.rank) continue;
        const auto expect = [&](TcpPurpose purpose, int lane, int stripe) {
            ++missing_;
            const TcpHello hello{.from = static_cast<std::uint32_t>(terms_.rank),
                                 .to = static_cast<std::uint32_t>(peer),
                                 .purpose = purpose,
                                 .lane = static_cast<std::uint8_t>(lane),
                                 .stripe = static_cast<std::uint8_t>(stripe),
                                 .token = card(peer).token};
            if (peer > terms_.rank) calls_.emplace_back(hello, *address, card(terms_.rank).token);
        };
        for (const auto purpose : {TcpPurpose::control, TcpPurpose::transfer_up, TcpPurpose::transfer_down})
            expect(purpose, 0, 0);
        for (int lane = 0; lane < lane_count; ++lane) {
            auto& stripes = mesh_.peers[static_cast<std::size_t>(peer)].lanes[static_cast<std::size_t>(lane)];
            stripes.resize(static_cast<std::size_t>(mesh_.stripes));
            for (int stripe = 0; stripe < mesh_.stripes; ++stripe) expect(TcpPurpose::lane, lane, stripe);
        }
    }
    for (auto& probe : probes_) probe = TcpProbe(clock_now() + probe_interval);
    return {};
}

/// Where the connection that `hello` speaks of belongs; null for one that is not expected.
FileDescriptor* MeshBuilder::place_of(const TcpHello& hello, std::uint32_t other) {
    TcpPeer& peer = mesh_.peers[other];
    const bool is_lower = terms_.rank < static_cast<int>(other);
    switch (hello.purpose) {
        case TcpPurpose::control: return &peer.control;
        case TcpPurpose::transfer_up: return is_lower ? &peer.outgoing : &peer.incoming;
        case TcpPurpose::transfer_down: return is_lower ? &peer.incoming : &peer.outgoing;
        case TcpPurpose::lane:
            if (hello.lane >= lane_count || hello.stripe >= mesh_.stripes) return nullptr;
            return &peer.lanes[hello.lane][hello.stripe];
    }
    return nullptr;
}

void MeshBuilder::settle(FileDescriptor& place, FileDescriptor socket, TcpPurpose purpose) {
    if (purpose == TcpPurpose::control)
        tune_control_socket(socket);
    else
        tune_data_socket(socket);
    place = std::move(socket);
    --missing_;
}

// ---- the loop ----

Result<void> MeshBuilder::begin_tries(Instant now) {
    for (auto& call : calls_) {
        if (now < call.due()) continue;
        const int to = static_cast<int>(call.hello().to);
        if (auto begun = call.dial(now); !begun)
            return Error{begun.error().code, cat(who(to), " ", begun.error().context)};
    }
    for (std::size_t rank = 0; rank < probes_.size(); ++rank) {
        if (now >= probes_[rank].due() && !is_whole(static_cast<int>(rank))) probes_[rank].begin(addresses_[rank], now);
    }
    return {};
}

Result<void> MeshBuilder::wait_and_serve(Instant deadline) {
    // A descriptor of -1 is passed over.
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    for (const auto& call : calls_) {
        polled.push_back({call.established() ? -1 : call.fd(), call.events(), 0});
        deadline = std::min(deadline, call.due());
    }
    for (const auto& probe : probes_) {
        polled.push_back({probe.fd(), POLLOUT, 0});
        deadline = std::min(deadline, probe.due());
    }
    const auto guest_count = guests_.size();
    for (const auto& guest : guests_) polled.push_back({guest.socket.get(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), poll_timeout_ms(deadline, clock_now())) < 0 && errno != EINTR) {
        return error_from_errno(errno, "wait for connections");
    }
    const auto now = clock_now();
    auto next = polled.cbegin() + 1;
    for (auto& call : calls_) {
        if ((next++)->revents == 0) continue;
        if (auto served = serve(call, now); !served) return served;
    }
    std::vector<std::string> gone;
    for (std::size_t rank = 0; rank < probes_.size(); ++rank) {
        if ((next++)->revents == 0 || !probes_[rank].refused(now) || is_whole(static_cast<int>(rank))) continue;
        gone.push_back(who(static_cast<int>(rank)));
    }
    if (!gone.empty()) return Error{Errc::peer_closed, cat(join(gone, ", "), " ended before the group stood")};
    for (std::size_t i = guest_count; i-- > 0;) {
        if (next[static_cast<std::ptrdiff_t>(i)].revents == 0 || serve(guests_[i])) continue;
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return polled[0].revents != 0 ? admit() : Result<void>();
}

Result<void> MeshBuilder::serve(TcpCall& call, Instant now) {
    const int to = static_cast<int>(call.hello().to);
    if (auto served = call.serve(now); !served)
        return Error{served.error().code, cat(who(to), " ", served.error().context)};
    if (call.established()) settle(*place_of(call.hello(), call.hello().to), call.take(), call.hello().purpose);
    return {};
}

Result<void> MeshBuilder::admit() {
    for (;;) {
        auto socket = accept_from(listener_);
        if (!socket.valid() && (errno == EMFILE || errno == ENFILE)) {
            return Error{Errc::limit_exceeded, cat("no file descriptor is left for ", missing_, " more connections; ",
                                                   "raise the limit (ulimit -n)")};
        }
        if (!socket.valid()) return {};
        if (guests_.size() >= strangers_max + static_cast<std::size_t>(missing_)) guests_.erase(guests_.begin());
        Guest guest;
        guest.socket = std::move(socket);
        guests_.push_back(std::move(guest));
    }
}

/// False when the guest may go.
bool MeshBuilder::serve(Guest& guest) {
    if (!receive_more(guest.socket, guest.hello, guest.hello_size)) return false;
    if (guest.hello_size < guest.hello.size()) return true;
    const auto hello = decode(guest.hello);
    const bool expected = hello && hello->token == card(terms_.rank).token && hello->from < hello->to &&
                          hello->to == static_cast<std::uint32_t>(terms_.rank);
    FileDescriptor* const place = expected ? place_of(*hello, hello->from) : nullptr;
    if (!place || place->valid()) {
        log(LogLevel::info, "communicator ", terms_.id, ": refused a connection that is not of this group");
        return false;
    }
    const auto& answer = card(static_cast<int>(hello->from)).token;
    const auto sent = ::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(answer.size())) settle(*place, std::move(guest.socket), hello->purpose);
    return false;
}

// ---- words ----

/// Whoever gives up because another has died is gone too, and may be seen first. So all that are gone are named.
Error MeshBuilder::with_others_gone(Error error) const {
    std::vector<std::string> gone;
    for (int rank = 0; rank < terms_.size; ++rank) {
        if (rank == terms_.rank || error.context.find(describe_rank(rank, card(rank))) != std::string::npos) continue;
        if (has_gone(rank)) gone.push_back(describe_rank(rank, card(rank)));
    }
    if (!gone.empty()) error.context += cat("; gone too: ", join(gone, ", "));
    return error;
}

/// Its connection to us has ended, or, as long as it still listens for us, it does not any more.
bool MeshBuilder::has_gone(int rank) const {
    const auto& control = mesh_.peers[static_cast<std::size_t>(rank)].control;
    if (control.valid()) {
        char byte = 0;
        const auto got = ::recv(control.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    }
    int failure = 0;
    const auto socket = begin_connect(addresses_[static_cast<std::size_t>(rank)], failure);
    if (failure != 0) return failure == ECONNREFUSED;
    pollfd answered{socket.get(), POLLOUT, 0};
    return ::poll(&answered, 1, last_look_ms) == 1 && connect_failure(socket) == ECONNREFUSED;
}

bool MeshBuilder::is_whole(int rank) const {
    const TcpPeer& peer = mesh_.peers[static_cast<std::size_t>(rank)];
    bool whole = peer.control.valid() && peer.outgoing.valid() && peer.incoming.valid();
    for (const auto& stripes : peer.lanes)
        for (const auto& stripe : stripes) whole = whole && stripe.valid();
    return whole;
}

std::string MeshBuilder::who(int rank) const {
    return cat(describe_rank(rank, card(rank)), " at ", card(rank).address, " port ", card(rank).port);
}

std::string MeshBuilder::absentees() const {
    std::vector<std::string> words;
    for (const auto& call : calls_) {
        if (call.established()) continue;
        auto text = cat(who(static_cast<int>(call.hello().to)), ": ", call.trouble());
        if (words.empty() || words.back() != text) words.push_back(std::move(text));
    }
    for (int rank = 0; rank < terms_.rank; ++rank)
        if (!is_whole(rank)) words.push_back(cat(describe_rank(rank, card(rank)), " did not connect"));
    return join(words, "; ");
}

}  // namespace muster::runtime
