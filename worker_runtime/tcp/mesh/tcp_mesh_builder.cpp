#include "worker_runtime/tcp/mesh/tcp_mesh_builder.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
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

/// To leave word of it for ranks without a connection.
constexpr Duration reason_limit = 1s;

Instant clock_now() {
    return std::chrono::steady_clock::now();
}

Result<void> ended_early(const std::vector<std::string>& gone) {
    if (gone.empty()) return {};
    return Error{Errc::peer_closed, cat(join(gone, ", "), " ended while the group was connecting")};
}

}  // namespace

MeshBuilder::MeshBuilder(const GroupTerms& terms, TcpMesh mesh, TcpNeed need)
    : terms_(terms), mesh_(std::move(mesh)), need_(need), missing_from_(mesh_.peers.size()) {}

std::unique_ptr<MeshBuilder> MeshBuilder::late(const GroupTerms& terms, const TcpMesh& mesh, int rank, bool control) {
    TcpMesh two{.peers = {}, .partners = {rank}, .stripes = mesh.stripes};
    two.peers.resize(mesh.peers.size());
    for (const int one : {terms.rank, rank}) two.peers[static_cast<std::size_t>(one)].card = mesh.card(one);
    return std::make_unique<MeshBuilder>(terms, std::move(two), TcpNeed{.control = control, .lanes = false});
}

Result<void> MeshBuilder::build(const MeetingWait& wait) {
    auto built = connect_all(wait);
    if (built) return {};
    return with_context(built.error(), cat("communicator ", terms_.id, ", rank ", terms_.rank));
}

Result<void> MeshBuilder::connect_all(const MeetingWait& wait) {
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
    return {};
}

Result<void> MeshBuilder::expect_connections() {
    for (const int peer : mesh_.partners) {
        const auto addresses = addresses_of(peer);
        if (addresses.empty()) return Error{Errc::bad_frame, cat(who(peer), " has published an invalid address")};
        if (peer > terms_.rank)
            searches_.emplace_back(hellos_to(peer).front(), addresses, pair_with(peer));
        else
            probes_.emplace(peer, TcpProbe(addresses, clock_now() + probe_interval));
        auto& lanes = mesh_.peers[static_cast<std::size_t>(peer)].lanes;
        for (auto& stripes : lanes) stripes.resize(need_.lanes ? static_cast<std::size_t>(mesh_.stripes) : 0);
        missing_ += missing_from_[static_cast<std::size_t>(peer)] = need_.count(mesh_.stripes);
    }
    return {};
}

/// One for each connection, in the order in which they are made.
std::vector<TcpHello> MeshBuilder::hellos_to(int rank) const {
    std::vector<TcpHello> hellos;
    TcpHello hello{.from = static_cast<std::uint32_t>(terms_.rank), .to = static_cast<std::uint32_t>(rank)};
    const auto add = [&](TcpPurpose purpose) {
        hello.purpose = purpose;
        hello.nonce = random_token();
        hellos.push_back(hello);
    };
    if (need_.control) add(TcpPurpose::control);
    if (need_.transfers) add(TcpPurpose::transfer_up);
    if (need_.transfers) add(TcpPurpose::transfer_down);
    for (hello.lane = 0; need_.lanes && hello.lane < lane_count; ++hello.lane)
        for (hello.stripe = 0; hello.stripe < mesh_.stripes; ++hello.stripe) add(TcpPurpose::lane);
    return hellos;
}

/// Where the connection that `hello` speaks of belongs; null for one that is not expected.
TcpStream* MeshBuilder::place_with(int other, const TcpHello& hello) {
    if (!std::binary_search(mesh_.partners.begin(), mesh_.partners.end(), other)) return nullptr;
    TcpPeer& peer = mesh_.peers[static_cast<std::size_t>(other)];
    const bool is_lower = terms_.rank < other;
    switch (hello.purpose) {
        case TcpPurpose::control: return need_.control ? &peer.control : nullptr;
        case TcpPurpose::transfer_up: return !need_.transfers ? nullptr : is_lower ? &peer.outgoing : &peer.incoming;
        case TcpPurpose::transfer_down: return !need_.transfers ? nullptr : is_lower ? &peer.incoming : &peer.outgoing;
        case TcpPurpose::lane:
            if (hello.lane >= lane_count || hello.stripe >= peer.lanes[hello.lane].size()) return nullptr;
            return &peer.lanes[hello.lane][hello.stripe];
    }
    return nullptr;
}

TcpWelcome MeshBuilder::welcome(const TcpHello& hello) {
    if (auto* const place = place_with(static_cast<int>(hello.from), hello)) return TcpWelcome::into(*place);
    // The caller's group stands already, and it is in a hurry.
    const bool hurries = is_sparse_start() && hello.purpose != TcpPurpose::lane;
    return {hurries ? TcpWelcome::Kind::later : TcpWelcome::Kind::refused};
}

void MeshBuilder::settle(TcpStream& place, TcpStream connection, const TcpHello& hello) {
    if (hello.purpose == TcpPurpose::control)
        tune_control_socket(connection.socket());
    else
        tune_data_socket(connection.socket());
    place = std::move(connection);
    const auto other = hello.to == static_cast<std::uint32_t>(terms_.rank) ? hello.from : hello.to;
    --missing_from_[other];
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
    for (auto& [rank, probe] : probes_)
        if (now >= probe.due() && !is_whole(rank) && probe.begin(now)) gone.push_back(who(rank));
    return ended_early(gone);
}

Result<void> MeshBuilder::wait_and_serve(Instant deadline) {
    // A descriptor of -1 is passed over.
    std::vector<pollfd> polled;
    polled.push_back({mesh_.door ? mesh_.door->bell().get() : -1, POLLIN, 0});
    for (const auto& call : calls_) {
        polled.push_back({call.fd(), call.events(), 0});
        deadline = std::min(deadline, call.due());
    }
    for (const auto& search : searches_) {
        search.add_to(polled);
        deadline = std::min(deadline, search.due());
    }
    for (const auto& [rank, probe] : probes_) {
        polled.push_back({probe.fd(), POLLOUT, 0});
        // A rank that is connected is not probed again. Its due time stays in the past, and no wait may end there.
        if (!is_whole(rank)) deadline = std::min(deadline, probe.due());
    }
    if (::poll(polled.data(), polled.size(), poll_timeout_ms(deadline, clock_now())) < 0) {
        if (errno == EINTR) return {};
        return error_from_errno(errno, "wait for connections");
    }
    const auto now = clock_now();
    const pollfd* next = polled.data() + 1;
    serve_calls(next, now);
    serve_searches(next, now);
    if (auto served = serve_probes(next, now); !served) return served;
    return polled[0].revents != 0 ? mesh_.door->serve(terms_, *this, static_cast<std::size_t>(missing_))
                                  : Result<void>();
}

void MeshBuilder::serve_calls(const pollfd*& next, Instant now) {
    for (auto& call : calls_) {
        if ((next++)->revents == 0) continue;
        call.serve(now);
        if (call.established())
            settle(*place_with(static_cast<int>(call.hello().to), call.hello()), call.take(), call.hello());
    }
}

void MeshBuilder::serve_searches(const pollfd*& next, Instant now) {
    for (auto& search : searches_) {
        TcpCall* const found = search.serve(next, now);
        next += search.address_count();
        if (!found) continue;
        // The rank is there: all other connections go the same way.
        const int rank = search.rank();
        settle(*place_with(rank, found->hello()), found->take(), found->hello());
        const auto hellos = hellos_to(rank);
        for (std::size_t i = 1; i < hellos.size(); ++i) calls_.emplace_back(hellos[i], found->to(), pair_with(rank));
    }
    std::erase_if(searches_, [&](const auto& search) {
        return missing_from_[static_cast<std::size_t>(search.rank())] < need_.count(mesh_.stripes);
    });
}

Result<void> MeshBuilder::serve_probes(const pollfd*& next, Instant now) {
    std::vector<std::string> gone;
    for (auto& [rank, probe] : probes_) {
        if ((next++)->revents == 0 || !probe.end(now) || is_whole(rank)) continue;
        gone.push_back(who(rank));
    }
    return ended_early(gone);
}

// ---- words ----

/// A peer whose group stands already would see this rank end, and blame it. In a large group so would partners that are
/// not connected yet: they find the first reason where the ranks meet.
Error MeshBuilder::give_up(Error error) const {
    const auto told = told_by_others();
    error = told ? *told : with_others_gone(std::move(error));
    if (!told && is_sparse_start())
        (void)terms_.place->publish(reason_key(), error.context, clock_now() + reason_limit);
    tell(error);
    return error;
}

void MeshBuilder::tell(const Error& error) const {
    const ControlFrame frame{.code = error.code, .text = error.context, .waits_for = {}};
    const auto deadline = frame_deadline();
    for (const auto& peer : mesh_.peers) send_frame(peer.control, frame, deadline);
}

/// In a large group, a rank that has given up before knows of one that this rank has no connection with.
std::optional<Error> MeshBuilder::told_by_others() const {
    if (!is_sparse_start()) return std::nullopt;
    for (const int rank : mesh_.partners) {
        std::array<char, 4096> bytes;
        const iovec part{bytes.data(), bytes.size()};
        const auto& control = mesh_.peers[static_cast<std::size_t>(rank)].control;
        const auto got = control.valid() ? control.receive({&part, 1}) : -1;
        std::string words(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        const auto frame = take_frame(words);
        if (frame && frame->kind == ControlFrame::Kind::failed) return Error{frame->code, frame->text};
    }
    const auto reason = terms_.place->collect({reason_key()}, clock_now());
    return reason ? std::optional(Error{Errc::peer_closed, reason->front()}) : std::nullopt;
}

/// Partners only, of a group that forms.
bool MeshBuilder::is_sparse_start() const {
    return need_.lanes && !need_.transfers;
}

std::string MeshBuilder::reason_key() const {
    return cat(terms_.id, "/tcp/failed");
}

/// Whoever gives up because another has died is gone too, and may be seen first. So all that are gone are named.
Error MeshBuilder::with_others_gone(Error error) const {
    std::vector<std::string> gone;
    for (const int rank : mesh_.partners) {
        if (error.context.find(who(rank)) != std::string::npos) continue;
        if (has_gone(rank)) gone.push_back(who(rank));
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
    return all_refuse(rank < terms_.rank ? probes_.at(rank).candidates() : addresses_of(rank), last_look);
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
    for (const auto& [rank, probe] : probes_)
        if (!is_whole(rank)) words.push_back(cat(who(rank), " did not connect to this rank at ", join(here, " or ")));
    return cat(join(words, "; "), ". Check for a firewall and for a wrong interface (MUSTER_IFNAME)");
}

}  // namespace muster::runtime
