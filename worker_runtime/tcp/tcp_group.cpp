#include "worker_runtime/tcp/tcp_group.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/transport/poll_timeout.h"

namespace muster::runtime {

namespace {

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
bool is_timeout(int failure) {
    return failure == ETIMEDOUT || failure == EHOSTUNREACH || failure == ENETUNREACH || failure == ENETDOWN;
}

}  // namespace

Result<std::unique_ptr<TcpGroup>> TcpGroup::over(const GroupTerms& terms, TcpMesh mesh) {
    FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake.valid()) return error_from_errno(errno, "make an event descriptor");
    std::unique_ptr<TcpGroup> group(new TcpGroup(terms, std::move(mesh), std::move(wake)));
    if (group->mesh_.door) {
        group->late_ = MUSTER_TRY(TcpLateLinks::over(group->terms_, group->mesh_));
    }
    return group;
}

TcpGroup::TcpGroup(const GroupTerms& terms, TcpMesh mesh, FileDescriptor wake)
    : terms_(terms),
      mesh_(std::move(mesh)),
      wake_(std::move(wake)),
      ranks_here_(static_cast<int>(
          std::count_if(mesh_.peers.begin(), mesh_.peers.end(),
                        [this](const TcpPeer& one) { return one.card.host == peer(rank()).card.host; }))),
      fork_guard_(sockets_of(mesh_)),
      inboxes_(mesh_.peers.size()) {
    if (!terms_.waits || !terms_.is_part()) return;
    entry_.emplace(terms_.waits, [this] {
        const std::lock_guard lock(mutex_);
        return terms_.in_root(waited_for());
    });
}

TcpGroup::~TcpGroup() {
    entry_.reset();
    if (terms_.waits && !terms_.is_part()) terms_.waits->trace_with(nullptr);
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    send_all({.kind = ControlFrame::Kind::left, .text = {}, .waits_for = {}});
}

Duration TcpGroup::spin(WaitMode patience) const {
    const bool crowded = static_cast<unsigned>(ranks_here_) > std::max(1u, std::thread::hardware_concurrency());
    return patience == WaitMode::eager && !crowded ? spin_limit : Duration::zero();
}

std::string TcpGroup::who(int rank) const {
    return describe_rank(terms_.in_root(rank), peer(rank).card);
}

std::string TcpGroup::who(const std::vector<int>& ranks) const {
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(who(rank));
    return join(names, ", ");
}

// ---- connections ----

const TcpStream& TcpGroup::control(int rank) const {
    const auto& ours = peer(rank).control;
    const auto* const late = late_ && !ours.valid() ? late_->with(rank) : nullptr;
    return late ? late->control : ours;
}

std::vector<int> TcpGroup::linked() const {
    auto ranks = mesh_.partners;
    if (!late_) return ranks;
    const auto strangers = late_->strangers();
    ranks.insert(ranks.end(), strangers.begin(), strangers.end());
    return ranks;
}

Result<const TcpPeer*> TcpGroup::link(int rank, const RunTerms& terms) {
    if (is_whole()) return &peer(rank);
    if (const auto* const late = late_->with(rank)) return late;
    waits_for(&terms, {rank});
    auto made = late_->connect(rank, terms.deadline);
    waits_for(&terms, {});
    if (made) return made;
    // A rank that cannot be reached may have died: its partners say so.
    const auto current = std::chrono::steady_clock::now();
    pollfd wake{wake_.get(), POLLIN, 0};
    if (::poll(&wake, 1, poll_timeout_ms(current + partners_message_timeout, current)) > 0) return failure();
    if (made.error().code == Errc::timed_out) return made;
    return fail(made.error().code, made.error().context);
}

bool TcpGroup::serve_late() {
    auto ranks = late_->serve();
    if (!ranks) return fail(ranks.error().code, ranks.error().context), false;
    for (const int rank : *ranks) (void)receive_or_lose(rank);
    const std::lock_guard lock(mutex_);
    return !failure_;
}

// ---- the group's end ----

Error TcpGroup::fail(Errc code, const std::string& text, std::uint64_t unfinished) {
    const std::lock_guard lock(mutex_);
    return fail_locked(code, text, unfinished);
}

Error TcpGroup::fail_locked(Errc code, const std::string& text, std::uint64_t unfinished) {
    if (failure_) return *failure_;
    failure_ = Error{code, text};
    given_up_ = std::max(given_up_, unfinished);
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    if (late_) late_->end(*failure_);
    send_all({.code = code, .unfinished = unfinished, .text = text, .waits_for = {}});
    return *failure_;
}

Error TcpGroup::failure() const {
    const std::lock_guard lock(mutex_);
    MUSTER_CHECK(failure_.has_value(), id());
    return *failure_;
}

bool TcpGroup::gave_up(std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    return given_up_ == number;
}

void TcpGroup::send(int rank, const ControlFrame& frame) const {
    send_frame(control(rank), frame);
}

/// Peers that are stopped cost their time together, not one after another.
void TcpGroup::send_all(const ControlFrame& frame) const {
    const auto deadline = frame_deadline();
    for (const int rank : linked()) send_frame(control(rank), frame, deadline);
}

// ---- listening ----

std::string TcpGroup::changed_bytes(int rank) const {
    return cat("bytes of the encrypted connection with ", who(rank),
               " were changed on the way: the network is faulty, or a third party is in between");
}

/// Takes what has come. Several threads may listen: what one reads, all find in the inbox, and a failure wakes them.
void TcpGroup::read(int rank) {
    Inbox& box = inbox(rank);
    while (box.told == PeerState::nothing && control(rank).valid()) {
        std::array<char, 4096> bytes;
        const iovec part{bytes.data(), bytes.size()};
        const auto got = control(rank).receive({&part, 1});
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got < 0 && errno == EBADMSG) {
            box.told = PeerState::ended;
            fail_locked(Errc::bad_frame, changed_bytes(rank), 0);
            return;
        }
        if (got <= 0) {
            box.told = got < 0 && is_timeout(errno) ? PeerState::silent : PeerState::ended;
            if (got < 0) box.silence = errno_text(errno);
            return;
        }
        box.bytes.append(bytes.data(), static_cast<std::size_t>(got));
        while (box.told == PeerState::nothing) {
            auto frame = take_frame(box.bytes);
            if (!frame) break;
            take(rank, std::move(*frame));
        }
    }
}

void TcpGroup::take(int rank, ControlFrame frame) {
    switch (frame.kind) {
        case ControlFrame::Kind::left: inbox(rank).told = PeerState::left; break;
        case ControlFrame::Kind::asks:
        case ControlFrame::Kind::answers:
            if (!frame.route.empty())
                pass_on(std::move(frame));
            else if (frame.kind == ControlFrame::Kind::answers)
                inbox(rank).waits_for = std::move(frame.waits_for);
            else
                send(rank, {.kind = ControlFrame::Kind::answers, .text = {}, .waits_for = waited_for()});
            break;
        case ControlFrame::Kind::gives_up:
            if (frame.unfinished <= given_up_) break;
            given_up_by_ = rank;
            given_up_ = frame.unfinished;
            if (!is_whole()) send_all(frame);
            break;
        case ControlFrame::Kind::failed:
            inbox(rank).told = PeerState::failed;
            fail_locked(frame.code, frame.text, frame.unfinished);
            break;
    }
}

Result<bool> TcpGroup::heard(int rank) {
    const Inbox& box = inbox(rank);
    if (box.told == PeerState::failed) return *failure_;
    if (box.told == PeerState::silent)
        return fail_locked(Errc::timed_out, cat(who(rank), " is unreachable: ", box.silence), 0);
    return box.told != PeerState::nothing;
}

Result<bool> TcpGroup::hear(int rank) {
    const std::lock_guard lock(mutex_);
    read(rank);
    return heard(rank);
}

Result<bool> TcpGroup::receive_or_lose(int rank) {
    const std::lock_guard lock(mutex_);
    read(rank);
    return received_or_lost(rank);
}

Result<bool> TcpGroup::received_or_lost(int rank) {
    if (inbox(rank).told == PeerState::ended) return fail_locked(Errc::peer_closed, cat(who(rank), " died"), 0);
    return heard(rank);
}

Result<void> TcpGroup::check_alive() {
    const auto ranks = linked();
    std::vector<pollfd> controls;
    for (const int one : ranks) controls.push_back({control(one).get(), POLLIN, 0});
    (void)::poll(controls.data(), controls.size(), 0);
    const std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (controls[i].revents != 0) read(ranks[i]);
        MUSTER_TRY(received_or_lost(ranks[i]));
    }
    return {};
}

/// Until the control connection has said its last. Another thread may read it, and then nothing wakes this one.
void TcpGroup::await_final_messages(int rank) {
    Instant current = std::chrono::steady_clock::now();
    for (const Instant end = current + final_messages_timeout; current < end;
         current = std::chrono::steady_clock::now()) {
        {
            const std::lock_guard lock(mutex_);
            read(rank);
            if (inbox(rank).told != PeerState::nothing) return;
        }
        pollfd news{control(rank).get(), POLLIN, 0};
        ::poll(&news, 1, poll_timeout_ms(std::min(end, current + answer_check_interval), current));
    }
}

bool TcpGroup::has_left(int rank) {
    await_final_messages(rank);
    const std::lock_guard lock(mutex_);
    return inbox(rank).told == PeerState::left;
}

Error TcpGroup::lost(int rank, int failure, const std::string& doing) {
    await_final_messages(rank);
    const std::lock_guard lock(mutex_);
    const Inbox& box = inbox(rank);
    if (box.told == PeerState::failed) return *failure_;
    if (box.told == PeerState::left)
        return fail_locked(Errc::peer_closed, cat(who(rank), " closed communicator ", id(), " before ", doing), 0);
    if (box.told == PeerState::silent || is_timeout(failure)) {
        const std::string words = box.told == PeerState::silent ? box.silence : errno_text(failure);
        return fail_locked(Errc::timed_out, cat(who(rank), " is unreachable in ", doing, ": ", words), 0);
    }
    if (failure == EBADMSG) return fail_locked(Errc::bad_frame, cat(changed_bytes(rank), " (in ", doing, ")"), 0);
    if (box.told == PeerState::ended) return fail_locked(Errc::peer_closed, cat(who(rank), " died in ", doing), 0);
    return fail_locked(Errc::peer_closed,
                       cat("the connection with ", who(rank), " broke in ", doing, ": ",
                           failure == 0 ? "closed" : errno_text(failure)),
                       0);
}

}  // namespace muster::runtime
