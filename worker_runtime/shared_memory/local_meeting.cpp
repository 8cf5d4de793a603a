#include "worker_runtime/shared_memory/local_meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/shared_memory/descriptor_datagram.h"

namespace muster::runtime {

namespace {

constexpr std::size_t trouble_bytes_max = 1024;
/// A number, a blank and a digest.
constexpr std::size_t hello_bytes_max = 64;
/// Connections of our own user that have not proven anything. A rank does that at once.
constexpr std::size_t guests_max = local_ranks_max + 64;
/// Between two looks at the deadline while a leader's queue is full.
constexpr Duration connect_nap_max = 1s;

/// The leader waits for all others until the deadline, and then says who did not come: so much later at most.
constexpr Duration leaders_message_timeout = 1s;

sockaddr_un abstract_address(const std::string& digits, socklen_t& length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = cat("muster-", digits);
    ::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

/// Those of the other ranks that `is_missing(rank)`, as messages name them.
template <typename IsMissing>
std::string name_missing(const std::vector<LocalIdentity>& identities, IsMissing is_missing) {
    std::vector<std::string> names;
    for (std::size_t rank = 1; rank < identities.size(); ++rank)
        if (is_missing(rank)) names.push_back(describe(identities[rank]));
    return join(names, ", ");
}

/// Shows that a rank of the group speaks: keyed with what only those know who can read the leader's identity. The
/// addresses are new in each group, and the sides hash different words, so no proof is of use a second time.
std::string proof_of(std::string_view side, const LocalIdentity& leader, const LocalIdentity& rank) {
    return hmac_sha256(leader.key, cat("muster ", side, ' ', rank.rank, ' ', rank.address, ' ', leader.address));
}

/// A rank's first words: its number in the meeting, and its proof.
std::string hello_of(std::size_t rank, const std::vector<LocalIdentity>& identities) {
    return cat(rank, ' ', proof_of("rank", identities[0], identities[rank]));
}

/// The leader's side while the star forms. Anybody may connect: another user is refused at once, and nobody is waited
/// for before he has proven that he is a missing rank.
class Reception {
  public:
    Reception(const FileDescriptor& listener, std::vector<FileDescriptor>& sockets,
              const std::vector<LocalIdentity>& identities)
        : listener_(listener), sockets_(sockets), identities_(identities), missing_(sockets.size() - 1) {}

    Result<void> accept_all(const MeetingWait& wait) {
        while (missing_ > 0) {
            std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
            for (const auto& guest : guests_) polled.push_back({guest.get(), POLLIN, 0});
            const auto ready = MUSTER_TRY(wait_any_ready(polled, wait));
            if (auto stands = wait.check_alive(); !stands) return stands;
            if (!ready || std::chrono::steady_clock::now() > wait.deadline) {
                const auto absent =
                    name_missing(identities_, [this](std::size_t rank) { return !sockets_[rank].valid(); });
                return Error{Errc::timed_out, cat(absent, " did not connect on this host")};
            }
            // Before others take their places.
            for (std::size_t i = 0; i < guests_.size(); ++i)
                if (polled[i + 1].revents != 0) hear(guests_[i]);
            std::erase_if(guests_, [](const FileDescriptor& guest) { return !guest.valid(); });
            if (polled[0].revents == 0) continue;
            if (auto accepted = accept(); !accepted) return accepted;
        }
        return {};
    }

  private:
    Result<void> accept() {
        FileDescriptor guest(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        // The rank stays in the queue, so waiting for it would be a busy loop.
        if (!guest.valid() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            return Error{Errc::limit_exceeded, cat(error_from_errno(errno, "take in a rank of this host").context,
                                                   "; raise the limit of open files (ulimit -n), or close files")};
        if (!guest.valid() || !peer_is_our_user(guest.get())) return {};
        if (guests_.size() == guests_max) guests_.erase(guests_.begin());
        guests_.push_back(std::move(guest));
        return {};
    }

    /// Takes the guest in, or leaves it where it is to be heard again, or closes it.
    void hear(FileDescriptor& guest) {
        const auto hello = receive_datagram(guest.get(), hello_bytes_max, 0);
        if (!hello && errno == EAGAIN) return;
        FileDescriptor socket = std::exchange(guest, {});
        std::size_t rank = 0;
        const auto bytes = hello ? std::string_view(hello->bytes) : std::string_view();
        if (!parse_number(bytes.substr(0, bytes.find(' ')), rank) || rank == 0 || rank >= sockets_.size() ||
            sockets_[rank].valid() || !same_digest(bytes, hello_of(rank, identities_))) {
            return;
        }
        if (send_datagram(socket.get(), proof_of("leader", identities_[0], identities_[rank])) != 0) return;
        sockets_[rank] = std::move(socket);
        --missing_;
    }

    const FileDescriptor& listener_;
    std::vector<FileDescriptor>& sockets_;
    const std::vector<LocalIdentity>& identities_;
    std::size_t missing_;
    std::vector<FileDescriptor> guests_;  ///< have said nothing yet, the oldest first
};

Result<FileDescriptor> listen_at(const std::string& digits) {
    FileDescriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(digits, length);
    if (!listener.valid() || ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(listener.get(), SOMAXCONN) != 0) {
        return error_from_errno(errno, "listen for the ranks of this host");
    }
    return listener;
}

/// On the wire a datagram is "." or what is wrong: the error's number, a blank, and text.
std::string words_of(const std::optional<Error>& wrong) {
    return wrong ? cat(static_cast<int>(wrong->code), " ", wrong->context.substr(0, trouble_bytes_max)) : ".";
}

std::optional<Error> wrong_in(const Datagram& datagram, std::size_t descriptor_count) {
    const std::string_view bytes(datagram.bytes);
    if (bytes == ".") {
        if (datagram.descriptors.size() == descriptor_count) return std::nullopt;
        return Error{Errc::limit_exceeded,
                     "file descriptors were lost: too many open files? Raise the limit (ulimit -n)"};
    }
    int code = 0;
    const auto blank = std::min(bytes.find(' '), bytes.size());
    if (!parse_number(bytes.substr(0, blank), code) || code < 0 || code > static_cast<int>(last_errc))
        return Error{Errc::bad_frame, "malformed bytes"};
    return Error{static_cast<Errc>(code), std::string(bytes.substr(std::min(blank + 1, bytes.size())))};
}

Error about(const LocalIdentity& who, Error error) {
    return with_context(std::move(error), describe(who));
}

MeetingWait until_leaders_word(MeetingWait wait) {
    if (wait.deadline < no_deadline - leaders_message_timeout) wait.deadline += leaders_message_timeout;
    return wait;
}

/// The leader listens before it publishes its address, so a refused connection means that it has gone. Where others
/// have filled the queue in front of it, this waits until it takes them out.
Result<FileDescriptor> connect_to(const LocalIdentity& leader, const MeetingWait& wait) {
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(leader.address, length);
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto context = cat("meet rank 0 (pid ", leader.pid, " on ", leader.host, ") on this host");
    while (socket.valid()) {
        const auto now = std::chrono::steady_clock::now();
        const auto nap = std::clamp<Duration>(wait.next_check(now) - now, 1ms, connect_nap_max);
        const timeval limit{.tv_sec = nap / 1s, .tv_usec = (nap % 1s) / 1us};
        ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return socket;
        if (errno != EAGAIN && errno != EINTR) break;
        if (auto stands = wait.check_alive(); !stands) return stands.error();
        if (now >= wait.deadline) return Error{Errc::timed_out, cat(context, ": it accepts no connection")};
    }
    return error_from_errno(errno, context);
}

/// Connects to the leader, and shows it that this is `rank`. Nothing of the group's goes to anybody who is not of our
/// user and does not know the group's key.
Result<FileDescriptor> join_leader(std::size_t rank, const std::vector<LocalIdentity>& identities,
                                   const MeetingWait& wait) {
    const auto& leader = identities[0];
    auto socket = connect_to(leader, wait);
    if (!socket) return socket;
    if (const auto user = peer_user(socket->get()); user != ::geteuid()) {
        return about(leader, {Errc::refused, cat("another user (uid ", user ? cat(*user) : "unknown",
                                                 ") listens at its address; this rank runs as uid ", ::geteuid())});
    }
    const auto sent = send_datagram_before(wait, socket->get(), hello_of(rank, identities));
    const auto proof = receive_datagram_before(until_leaders_word(wait), socket->get());
    if (auto stands = wait.check_alive(); !proof && !stands) return stands.error();
    if (!proof) return about(leader, sent ? proof.error() : sent.error());
    if (!same_digest(proof->bytes, proof_of("leader", leader, identities[rank])))
        return about(leader, {Errc::refused,
                              "another process, which does not know the group's key, listens at its "
                              "address"});
    return socket;
}

}  // namespace

Result<LocalDoor> LocalDoor::open(int rank) {
    LocalDoor door{LocalIdentity::of_this_process(rank), {}};
    door.listener = MUSTER_TRY(listen_at(door.identity.address));
    return door;
}

Result<LocalMeeting> LocalMeeting::hold(int rank, LocalDoor door, std::vector<LocalIdentity> identities,
                                        const MeetingWait& wait) {
    MUSTER_CHECK(rank < static_cast<int>(identities.size()), rank, identities.size());
    LocalMeeting meeting(rank, std::move(identities));
    if (rank == 0) {
        meeting.sockets_.resize(meeting.identities_.size());
        Reception reception(door.listener, meeting.sockets_, meeting.identities_);
        if (auto all = reception.accept_all(wait); !all) {
            // Those who came wait for the leader's word.
            for (const auto& socket : meeting.sockets_)
                if (socket.valid()) (void)send_datagram_before(wait.deadline, socket.get(), words_of(all.error()));
            return all.error();
        }
        return meeting;
    }
    meeting.sockets_.push_back(MUSTER_TRY(join_leader(static_cast<std::size_t>(rank), meeting.identities_, wait)));
    return meeting;
}

Result<std::vector<FileDescriptor>> LocalMeeting::share(const FileDescriptor& descriptor, const std::string& trouble,
                                                        const MeetingWait& wait) {
    std::optional<Error> wrong;
    if (!trouble.empty()) wrong = Error{Errc::limit_exceeded, trouble};
    return rank_ == 0 ? lead(descriptor, std::move(wrong), wait) : follow(descriptor, wrong, wait);
}

Result<std::vector<FileDescriptor>> LocalMeeting::lead(const FileDescriptor& own, std::optional<Error> wrong,
                                                       const MeetingWait& wait) {
    const auto by = [this](std::size_t rank, const Error& error) {
        return with_context(error, cat("rank ", identities_[rank].rank));
    };
    if (wrong) wrong = by(0, *wrong);
    std::vector<FileDescriptor> all(sockets_.size());
    all[0] = FileDescriptor(::fcntl(own.get(), F_DUPFD_CLOEXEC, 0));
    std::vector<bool> is_late(sockets_.size());
    for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
        auto parcel = receive_datagram_before(wait, sockets_[rank].get());
        is_late[rank] = !parcel && parcel.error().code == Errc::timed_out;
        if (is_late[rank]) continue;
        if (auto stands = wait.check_alive(); !parcel && !stands) {
            wrong = stands.error();
            break;
        }
        if (!parcel) {
            // All learn of it, and it is the group's end: what the others have sent stays unread.
            wrong = about(identities_[rank], parcel.error());
            if (wrong->code == Errc::limit_exceeded) wrong->code = Errc::io;
            break;
        }
        const auto theirs = wrong_in(*parcel, 1);
        if (!theirs) all[rank] = std::move(parcel->descriptors[0]);
        if (theirs && !wrong) wrong = by(rank, *theirs);
    }
    if (const auto late = name_missing(identities_, [&](std::size_t rank) { return is_late[rank]; }); !late.empty())
        wrong = Error{Errc::timed_out, cat(late, ": timed out while receiving")};
    if (!all[0].valid() && !wrong) wrong = by(0, error_from_errno(errno, "copy a descriptor"));
    std::vector<int> numbers;
    for (const auto& one : all) numbers.push_back(one.get());
    if (wrong) numbers.clear();
    for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
        auto sent = send_datagram_before(wait.deadline, sockets_[rank].get(), words_of(wrong), numbers);
        if (!sent && !wrong) return about(identities_[rank], sent.error());
    }
    if (wrong) return *wrong;
    return all;
}

Result<std::vector<FileDescriptor>> LocalMeeting::follow(const FileDescriptor& own, const std::optional<Error>& wrong,
                                                         const MeetingWait& wait) {
    std::vector<int> numbers;
    if (!wrong) numbers.push_back(own.get());
    // Where that fails, the leader may have said why before it left.
    const auto sent = send_datagram_before(wait, sockets_[0].get(), words_of(wrong), numbers);
    auto parcel = receive_datagram_before(until_leaders_word(wait), sockets_[0].get());
    if (auto stands = wait.check_alive(); !parcel && !stands) return stands.error();
    if (!parcel) return about(identities_[0], sent ? parcel.error() : sent.error());
    if (auto theirs = wrong_in(*parcel, identities_.size()); theirs) return *theirs;
    return std::move(parcel->descriptors);
}

}  // namespace muster::runtime
