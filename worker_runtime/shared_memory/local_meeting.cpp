#include "worker_runtime/shared_memory/local_meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/kernel/boot_id.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/shared_memory/descriptor_datagram.h"

namespace muster::runtime {

namespace {

constexpr std::size_t trouble_bytes_max = 1024;

/// The leader waits for all others until the deadline, and then says who did not come: so much later at most.
constexpr Duration leaders_message_timeout = 1s;

std::string random_digits() {
    unsigned char bytes[16] = {};
    std::size_t filled = 0;
    while (filled < sizeof bytes) {
        const auto got = ::getrandom(bytes + filled, sizeof bytes - filled, 0);
        if (got > 0) filled += static_cast<std::size_t>(got);
    }
    std::string digits;
    for (const auto byte : bytes) {
        digits += "0123456789abcdef"[byte >> 4];
        digits += "0123456789abcdef"[byte & 15];
    }
    return digits;
}

sockaddr_un abstract_address(const std::string& digits, socklen_t& length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = cat("muster-", digits);
    ::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

}  // namespace

LocalIdentity LocalIdentity::of_this_process(int rank) {
    LocalIdentity identity;
    identity.rank = rank;
    char host[256] = {};
    identity.host = ::gethostname(host, sizeof host - 1) == 0 && host[0] != '\0' ? host : "unknown";
    identity.kernel = boot_id();
    struct stat facts {};
    if (::stat("/proc/self/ns/net", &facts) == 0) identity.network_space = cat(facts.st_dev, "-", facts.st_ino);
    if (identity.network_space.empty()) identity.network_space = "unknown";
    identity.pid = ::getpid();
    identity.address = random_digits();
    return identity;
}

std::string LocalIdentity::encode() const {
    return join({host, kernel, network_space, cat(pid), cat(node), cat(rank), address}, " ");
}

Result<LocalIdentity> LocalIdentity::decode(const std::string& text) {
    const auto words = split(text, ' ');
    LocalIdentity identity;
    if (words.size() != 7 || !parse_number(words[3], identity.pid) || !parse_number(words[4], identity.node) ||
        !parse_number(words[5], identity.rank) || words[6].size() != 32) {
        return Error{Errc::bad_frame, cat("a rank's identity is malformed: \"", text, '"')};
    }
    identity.host = words[0];
    identity.kernel = words[1];
    identity.network_space = words[2];
    identity.address = words[6];
    return identity;
}

std::string describe(const LocalIdentity& identity) {
    return cat("rank ", identity.rank, " (pid ", identity.pid, " on ", identity.host, ")");
}

bool can_meet(const LocalIdentity& a, const LocalIdentity& b) {
    return a.kernel == b.kernel && a.kernel != "unknown" && a.network_space == b.network_space &&
           a.network_space != "unknown";
}

namespace {

/// Those of the other ranks that `is_missing(rank)`, as messages name them.
template <typename IsMissing>
std::string name_missing(const std::vector<LocalIdentity>& identities, IsMissing is_missing) {
    std::vector<std::string> names;
    for (std::size_t rank = 1; rank < identities.size(); ++rank)
        if (is_missing(rank)) names.push_back(describe(identities[rank]));
    return join(names, ", ");
}

/// Accepts the other ranks; each says its number.
Result<void> accept_all(const FileDescriptor& listener, std::vector<FileDescriptor>& sockets,
                        const std::vector<LocalIdentity>& identities, const MeetingWait& wait) {
    for (std::size_t missing = sockets.size() - 1; missing > 0;) {
        const auto ready = wait_ready(listener.get(), POLLIN, wait);
        if (!ready) return ready.error();
        if (!*ready) {
            const auto absent = name_missing(identities, [&](std::size_t rank) { return !sockets[rank].valid(); });
            return Error{Errc::timed_out, cat(absent, " did not connect on this host")};
        }
        FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) continue;
        auto hello = receive_datagram_before(wait, socket.get());
        std::size_t rank = 0;
        if (!hello || !parse_number(std::string_view(hello->bytes), rank) || rank == 0 || rank >= sockets.size() ||
            sockets[rank].valid()) {
            continue;  // a stranger
        }
        sockets[rank] = std::move(socket);
        --missing;
    }
    return {};
}

Result<FileDescriptor> listen_at(const std::string& digits, int backlog) {
    FileDescriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(digits, length);
    if (!listener.valid() || ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(listener.get(), backlog) != 0) {
        return error_from_errno(errno, "listen for the ranks of this host");
    }
    return listener;
}

Result<FileDescriptor> connect_to(const LocalIdentity& leader, int rank, const MeetingWait& wait) {
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(leader.address, length);
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    // The leader listens before it tells its address, so a refusal means that it has gone.
    if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
        return error_from_errno(errno, cat("meet rank 0 (pid ", leader.pid, " on ", leader.host, ") on this host"));
    }
    if (auto sent = send_datagram_before(wait, socket.get(), cat(rank)); !sent) return sent.error();
    return socket;
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
    if (!parse_number(bytes.substr(0, blank), code) || code < 0 || code > static_cast<int>(Errc::io))
        return Error{Errc::bad_frame, "malformed bytes"};
    return Error{static_cast<Errc>(code), std::string(bytes.substr(std::min(blank + 1, bytes.size())))};
}

Error about(const LocalIdentity& who, Error error) {
    return with_context(std::move(error), describe(who));
}

}  // namespace

Result<LocalDoor> LocalDoor::open(int rank, int group_size) {
    LocalDoor door{LocalIdentity::of_this_process(rank), {}};
    auto listener = listen_at(door.identity.address, group_size);
    if (!listener) return listener.error();
    door.listener = std::move(*listener);
    return door;
}

Result<LocalMeeting> LocalMeeting::hold(int rank, LocalDoor door, std::vector<LocalIdentity> identities,
                                        const MeetingWait& wait) {
    MUSTER_CHECK(rank < static_cast<int>(identities.size()), rank, identities.size());
    LocalMeeting meeting(rank, std::move(identities));
    if (rank == 0) {
        meeting.sockets_.resize(meeting.identities_.size());
        if (auto all = accept_all(door.listener, meeting.sockets_, meeting.identities_, wait); !all) {
            // Those who came wait for the leader's word.
            for (const auto& socket : meeting.sockets_)
                if (socket.valid()) (void)send_datagram_before(wait.deadline, socket.get(), words_of(all.error()));
            return all.error();
        }
        return meeting;
    }
    auto socket = connect_to(meeting.identities_[0], rank, wait);
    if (!socket) return socket.error();
    meeting.sockets_.push_back(std::move(*socket));
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
    auto leaders = wait;
    if (wait.deadline < no_deadline - leaders_message_timeout) leaders.deadline += leaders_message_timeout;
    auto parcel = receive_datagram_before(leaders, sockets_[0].get());
    if (auto stands = wait.check_alive(); !parcel && !stands) return stands.error();
    if (!parcel) return about(identities_[0], sent ? parcel.error() : sent.error());
    if (auto theirs = wrong_in(*parcel, identities_.size()); theirs) return *theirs;
    return std::move(parcel->descriptors);
}

}  // namespace muster::runtime
