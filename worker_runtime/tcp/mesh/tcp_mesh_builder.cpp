#include "worker_runtime/tcp/mesh/tcp_mesh_builder.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_control.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/mesh/tcp_socket.h"
#include "worker_runtime/transport/poll_timeout.h"

namespace muster::runtime {

namespace {

/// For the answer of a host, once this rank knows that the group will not stand.
constexpr Duration last_look = 200ms;

Instant clock_now() {
    return std::chrono::steady_clock::now();
}

Result<void> ended_early(const std::vector<std::string>& gone) {
    if (gone.empty()) return {};
    return Error{Errc::peer_closed, cat(join(gone, ", "), " ended while the group was connecting")};
}

}  // namespace

MeshBuilder::MeshBuilder(const GroupTerms& terms, TcpMesh mesh, std::vector<FileDescriptor> listeners)
    : terms_(terms), mesh_(std::move(mesh)), listeners_(std::move(listeners)) {}

Result<TcpMesh> MeshBuilder::build(const MeetingWait& wait) {
    if (auto expected = expect_connections(); !expected) return expected.error();
    auto complains = clock_now() + forming_is_long_after;
    while (missing_ > 0) {
        const auto now = clock_now();
        if (auto stands = wait.check_alive(); !stands) {
            tell(stands.error());
            return stands.error();
        }
        if (now >= wait.deadline) return Error{Errc::timed_out, absentees()};
        if (now >= complains) {
            log(LogLevel::warning, "communicator ", terms_.id, ", rank ", terms_.rank, ": after ",
                muster::describe(forming_is_long_after), " not yet connected: ", absentees());
            complains = no_deadline;
        }
        if (auto begun = begin_tries(now); !begun) return give_up(begun.error());
        if (auto served = wait_and_serve(std::min(wait.next_check(now), complains)); !served)
            return give_up(served.error());
    }
    return std::move(mesh_);
}

Result<void> MeshBuilder::expect_connections() {
    for (int peer = 0; peer < terms_.size; ++peer) {
        if (peer == terms_.rank) continue;
        const auto addresses = addresses_of(peer);
        if (addresses.empty()) return Error{Errc::bad_frame, cat(who(peer), " has published an invalid address")};
        if (peer > terms_.rank)
            searches_.emplace_back(hello_to(peer, TcpPurpose::control), addresses, pair(terms_.rank, peer));
        else
            probes_.emplace_back(addresses, clock_now() + probe_interval);
        auto& lanes = mesh_.peers[static_cast<std::size_t>(peer)].lanes;
        for (auto& stripes : lanes) stripes.resize(static_cast<std::size_t>(mesh_.stripes));
        missing_ += 3 + lane_count * mesh_.stripes;
    }
    return {};
}

TcpHello MeshBuilder::hello_to(int rank, TcpPurpose purpose) const {
    return {
        .from = static_cast<std::uint32_t>(terms_.rank), .to = static_cast<std::uint32_t>(rank), .purpose = purpose};
}

TcpPair MeshBuilder::pair(int caller, int called) const {
    return {
        .group = terms_.id, .security = terms_.security, .caller = card(caller).token, .called = card(called).token};
}

/// The rank is at the other end of `found`: all other connections go the same way.
void MeshBuilder::follow(const TcpCall& found) {
    const int rank = static_cast<int>(found.hello().to);
    const auto call = [&](TcpHello hello) {
        hello.nonce = random_token();
        calls_.emplace_back(hello, found.to(), pair(terms_.rank, rank));
    };
    call(hello_to(rank, TcpPurpose::transfer_up));
    call(hello_to(rank, TcpPurpose::transfer_down));
    TcpHello hello = hello_to(rank, TcpPurpose::lane);
    for (hello.lane = 0; hello.lane < lane_count; ++hello.lane)
        for (hello.stripe = 0; hello.stripe < mesh_.stripes; ++hello.stripe) call(hello);
}

/// Where the connection that `hello` speaks of belongs; null for one that is not expected.
TcpStream* MeshBuilder::place_of(const TcpHello& hello, std::uint32_t other) {
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

void MeshBuilder::settle(TcpStream& place, TcpStream connection, TcpPurpose purpose) {
    if (purpose == TcpPurpose::control)
        tune_control_socket(connection.socket());
    else
        tune_data_socket(connection.socket());
    place = std::move(connection);
    --missing_;
}

// ---- the loop ----

Result<void> MeshBuilder::begin_tries(Instant now) {
    for (auto& search : searches_) {
        if (now >= search.due())
            if (auto begun = search.dial(now); !begun)
                return Error{begun.error().code, cat(who(search.rank()), ": ", begun.error().context)};
        if (search.hopeless())
            return Error{Errc::unreachable, cat(who(search.rank()), " cannot be reached (", search.what_was_tried(),
                                                "): it has ended, or a firewall blocks the connection")};
    }
    for (auto& call : calls_) {
        const int rank = static_cast<int>(call.hello().to);
        if (now >= call.due())
            if (auto begun = call.dial(now); !begun)
                return Error{begun.error().code, cat(who(rank), ": ", begun.error().context)};
        if (call.hopeless())
            return Error{Errc::peer_closed, cat(who(rank), " ended while the group was connecting (", call.where(),
                                                ": ", call.trouble(), ")")};
    }
    std::vector<std::string> gone;
    for (std::size_t rank = 0; rank < probes_.size(); ++rank)
        if (now >= probes_[rank].due() && !is_whole(static_cast<int>(rank)) && probes_[rank].begin(now))
            gone.push_back(who(static_cast<int>(rank)));
    return ended_early(gone);
}

Result<void> MeshBuilder::wait_and_serve(Instant deadline) {
    // A descriptor of -1 is passed over.
    std::vector<pollfd> polled;
    for (const auto& listener : listeners_) polled.push_back({listener.get(), POLLIN, 0});
    for (const auto& call : calls_) {
        polled.push_back({call.fd(), call.events(), 0});
        deadline = std::min(deadline, call.due());
    }
    for (const auto& search : searches_) {
        search.add_to(polled);
        deadline = std::min(deadline, search.due());
    }
    for (const auto& probe : probes_) {
        polled.push_back({probe.fd(), POLLOUT, 0});
        deadline = std::min(deadline, probe.due());
    }
    const auto guest_count = guests_.size();
    for (const auto& guest : guests_) polled.push_back({guest.socket.get(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), poll_timeout_ms(deadline, clock_now())) < 0) {
        if (errno == EINTR) return {};
        return error_from_errno(errno, "wait for connections");
    }
    const auto now = clock_now();
    const pollfd* next = polled.data() + listeners_.size();
    serve_calls(next, now);
    serve_searches(next, now);
    if (auto served = serve_probes(next, now); !served) return served;
    for (std::size_t i = guest_count; i-- > 0;) {
        if (next[i].revents == 0 || serve(guests_[i])) continue;
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
        if (polled[i].revents == 0) continue;
        if (auto admitted = admit(listeners_[i]); !admitted) return admitted;
    }
    return {};
}

void MeshBuilder::serve_calls(const pollfd*& next, Instant now) {
    for (auto& call : calls_) {
        if ((next++)->revents == 0) continue;
        call.serve(now);
        if (call.established()) settle(*place_of(call.hello(), call.hello().to), call.take(), call.hello().purpose);
    }
}

void MeshBuilder::serve_searches(const pollfd*& next, Instant now) {
    for (auto& search : searches_) {
        TcpCall* const found = search.serve(next, now);
        next += search.address_count();
        if (!found) continue;
        settle(mesh_.peers[found->hello().to].control, found->take(), TcpPurpose::control);
        follow(*found);
    }
    std::erase_if(searches_, [&](const auto& search) {
        return mesh_.peers[static_cast<std::size_t>(search.rank())].control.valid();
    });
}

Result<void> MeshBuilder::serve_probes(const pollfd*& next, Instant now) {
    std::vector<std::string> gone;
    for (std::size_t rank = 0; rank < probes_.size(); ++rank) {
        if ((next++)->revents == 0 || !probes_[rank].end(now) || is_whole(static_cast<int>(rank))) continue;
        gone.push_back(who(static_cast<int>(rank)));
    }
    return ended_early(gone);
}

Result<void> MeshBuilder::admit(const FileDescriptor& listener) {
    for (;;) {
        auto socket = accept_from(listener);
        if (!socket.valid() && (errno == EMFILE || errno == ENFILE)) {
            return Error{Errc::limit_exceeded, cat("no file descriptor is left for ", missing_, " more connections; ",
                                                   "raise the limit (ulimit -n)")};
        }
        if (!socket.valid()) return {};
        if (guests_.size() >= unknown_callers_max + static_cast<std::size_t>(missing_)) guests_.erase(guests_.begin());
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
    const bool expected = hello && hello->from < hello->to && hello->to == static_cast<std::uint32_t>(terms_.rank);
    const auto both = expected ? at_place(pair(static_cast<int>(hello->from), terms_.rank),
                                          SocketAddress::local_of(guest.socket.get()))
                               : TcpPair{};
    TcpStream* const place = expected && is_proven(guest.hello, both) ? place_of(*hello, hello->from) : nullptr;
    if (place && place->valid()) return false;  // the rank has found another of our addresses too
    if (!place) return refuse(guest);
    const auto answer = answer_to(guest.hello, both);
    const auto sent = ::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(answer.size())) return false;
    settle(*place, stream_of(std::move(guest.socket), TcpEnd::called, guest.hello, answer, both), hello->purpose);
    return false;
}

/// Once aloud: a scan of all ports is no reason to fill a log.
bool MeshBuilder::refuse(const Guest& guest) {
    SocketAddress from;
    if (::getpeername(guest.socket.get(), from.writable_data(), from.writable_size()) != 0) from = {};
    log(std::exchange(told_of_strangers_, true) ? LogLevel::debug : LogLevel::warning, "communicator ", terms_.id,
        ", rank ", terms_.rank, ": refused a connection from ", describe(TcpPlace{from.numeric(), from.port()}),
        ", which has no proof that it is a rank of this group and called this rank at ",
        describe(at_place({}, SocketAddress::local_of(guest.socket.get())).at),
        ": another program, or a rank of another job or round, or one whose connection was passed on by a third party "
        "(a network that translates addresses needs --wire-security encrypt)");
    return false;
}

// ---- words ----

/// A peer whose group stands already would see this rank end, and blame it.
Error MeshBuilder::give_up(Error error) const {
    error = with_others_gone(std::move(error));
    tell(error);
    return error;
}

void MeshBuilder::tell(const Error& error) const {
    const ControlFrame frame{.code = error.code, .text = error.context, .waits_for = {}};
    const auto deadline = frame_deadline();
    for (const auto& peer : mesh_.peers) send_frame(peer.control, frame, deadline);
}

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
    return all_refuse(rank < terms_.rank ? probes_[static_cast<std::size_t>(rank)].candidates() : addresses_of(rank),
                      last_look);
}

bool MeshBuilder::is_whole(int rank) const {
    const TcpPeer& peer = mesh_.peers[static_cast<std::size_t>(rank)];
    bool whole = peer.control.valid() && peer.outgoing.valid() && peer.incoming.valid();
    for (const auto& stripes : peer.lanes)
        for (const auto& stripe : stripes) whole = whole && stripe.valid();
    return whole;
}

/// Those that are addresses; an address of a kind that this host does not know leads nowhere from here.
std::vector<SocketAddress> MeshBuilder::addresses_of(int rank) const {
    std::vector<SocketAddress> addresses;
    for (const auto& place : card(rank).places)
        if (const auto address = SocketAddress::from_numeric(place.address, place.port)) addresses.push_back(*address);
    return addresses;
}

std::string MeshBuilder::absentees() const {
    std::vector<std::string> words;
    for (const auto& search : searches_)
        words.push_back(cat(who(search.rank()), " cannot be reached: ", search.what_was_tried()));
    for (const auto& call : calls_) {
        if (call.established()) continue;
        auto text = cat(who(static_cast<int>(call.hello().to)), " (", call.where(), "): ", call.trouble());
        if (words.empty() || words.back() != text) words.push_back(std::move(text));
    }
    std::vector<std::string> here;
    for (const auto& place : card(terms_.rank).places) here.push_back(describe(place));
    for (int rank = 0; rank < terms_.rank; ++rank)
        if (!is_whole(rank)) words.push_back(cat(who(rank), " did not connect to this rank at ", join(here, " or ")));
    return cat(join(words, "; "), ". Check for a firewall and for a wrong interface (MUSTER_IFNAME)");
}

}  // namespace muster::runtime
