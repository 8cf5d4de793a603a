#include "rendezvous/base/sockets/peer_user.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/sock_diag.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

/// A TCP address as the kernel's table has it: IPv4 that came through an IPv6 socket is IPv4 there.
struct Key {
    unsigned char family = AF_UNSPEC;
    std::array<std::uint32_t, 4> address{};  ///< in network byte order
    std::uint16_t port = 0;                  ///< in host byte order
};

Key key_of(const SocketAddress& address) {
    Key key{.family = AF_UNSPEC, .address = {}, .port = address.port()};
    const auto numeric = address.numeric();
    // A client may have bound another interface than this end shows.
    const auto digits = numeric.substr(0, numeric.find('%'));
    if (::inet_pton(AF_INET, digits.c_str(), key.address.data()) == 1)
        key.family = AF_INET;
    else if (::inet_pton(AF_INET6, digits.c_str(), key.address.data()) == 1)
        key.family = AF_INET6;
    return key;
}

using Holder = PeerUsers::Holder;

/// True if this process's user namespace owns its network namespace, as in a container with a network of its own: then
/// no user from outside has a socket here.
bool network_is_ours() {
    const FileDescriptor network(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    const FileDescriptor owner(network.valid() ? ::ioctl(network.get(), NS_GET_USERNS) : -1);
    struct stat theirs {};
    struct stat ours {};
    return owner.valid() && ::fstat(owner.get(), &theirs) == 0 && ::stat("/proc/self/ns/user", &ours) == 0 &&
           theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

/// TCP_LISTEN of <netinet/tcp.h>, which does not go together with the kernel's headers.
constexpr unsigned char listening = 10;

/// A socket whose descriptor is closed has no inode, and the kernel then reports user 0: it must not pass for root's.
Holder holder(std::uint32_t inode, uid_t user) {
    return {.is_here = true, .user = inode == 0 ? std::nullopt : one_user(user)};
}

struct Question {
    nlmsghdr header;
    inet_diag_req_v2 body;
};

/// Empty when netlink does not answer.
std::optional<Holder> ask_netlink(int netlink, const Key& peer, const Key& local) {
    Question question{};
    question.header.nlmsg_len = sizeof question;
    question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    question.header.nlmsg_flags = NLM_F_REQUEST;
    question.body.sdiag_family = peer.family;
    question.body.sdiag_protocol = IPPROTO_TCP;
    question.body.idiag_states = ~0U;
    question.body.id.idiag_sport = htons(peer.port);
    question.body.id.idiag_dport = htons(local.port);
    std::memcpy(question.body.id.idiag_src, peer.address.data(), sizeof peer.address);
    std::memcpy(question.body.id.idiag_dst, local.address.data(), sizeof local.address);
    question.body.id.idiag_cookie[0] = question.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (::send(netlink, &question, sizeof question, 0) != sizeof question) return std::nullopt;

    // The kernel answers within send(). MSG_DONTWAIT: never wait for an answer that was dropped.
    alignas(nlmsghdr) std::array<char, 1024> answer{};
    const auto size = ::recv(netlink, answer.data(), answer.size(), MSG_DONTWAIT);
    nlmsghdr header{};
    if (size < static_cast<ssize_t>(sizeof header)) return std::nullopt;
    std::memcpy(&header, answer.data(), sizeof header);
    const auto* body = answer.data() + NLMSG_HDRLEN;
    if (header.nlmsg_type == NLMSG_ERROR && size >= static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(int))) {
        int number = 0;
        std::memcpy(&number, body, sizeof number);
        return number == -ENOENT ? std::optional(Holder{}) : std::nullopt;
    }
    inet_diag_msg found{};
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || size < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof found))
        return std::nullopt;
    std::memcpy(&found, body, sizeof found);
    // Where no connection fits, the kernel returns what listens at the peer's port here: that is nobody's other end.
    if (found.idiag_state == listening || found.id.idiag_dport != htons(local.port)) return Holder{};
    return holder(found.idiag_inode, found.idiag_uid);
}

/// "0100007F:7530": the kernel prints 32 bits at a time as this host's integers.
std::string proc_text(const Key& key) {
    std::string text;
    for (std::size_t word = 0; word < (key.family == AF_INET ? 1 : 4); ++word) {
        std::array<char, 9> hex{};
        std::snprintf(hex.data(), hex.size(), "%08X", key.address[word]);
        text += hex.data();
    }
    std::array<char, 6> port{};
    std::snprintf(port.data(), port.size(), ":%04X", key.port);
    return text + port.data();
}

/// Fields of /proc/net/tcp: 1 local address, 2 remote address, 7 user, 9 inode.
Holder search_proc(const char* path, const std::string& peer, const std::string& local) {
    const auto table = read_file(path);
    for (const auto line : split(table, '\n')) {
        std::array<std::string_view, 10> fields;
        std::size_t at = 0;
        for (auto& field : fields) {
            at = line.find_first_not_of(' ', at);
            if (at == std::string_view::npos) break;
            const auto end = std::min(line.find(' ', at), line.size());
            field = line.substr(at, end - at);
            at = end;
        }
        std::uint32_t inode = 0;
        uid_t user = 0;
        if (fields[1] == peer && fields[2] == local && parse_number(fields[7], user) && parse_number(fields[9], inode))
            return holder(inode, user);
    }
    return {};
}

Holder ask_proc(const Key& peer, const Key& local) {
    if (peer.family == AF_INET6) return search_proc("/proc/net/tcp6", proc_text(peer), proc_text(local));
    if (const auto found = search_proc("/proc/net/tcp", proc_text(peer), proc_text(local)); found.is_here) return found;
    // An IPv6 socket that is connected to an IPv4 address.
    constexpr const char* mapped = "0000000000000000FFFF0000";
    return search_proc("/proc/net/tcp6", mapped + proc_text(peer), mapped + proc_text(local));
}

}  // namespace

std::optional<uid_t> peer_user(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
    return one_user(peer.uid);
}

std::optional<uid_t> one_user(uid_t number) {
    static const uid_t overflow = [] {
        uid_t set = 0;
        return parse_number(trim(read_file("/proc/sys/kernel/overflowuid")), set) ? set : uid_t{65'534};
    }();
    if (number != overflow) return number;
    // "         0       1000          1": inside, outside, count.
    std::uint64_t known = 0;
    const auto map = read_file("/proc/self/uid_map");
    for (const auto line : split(map, '\n')) {
        std::uint64_t count = 0;
        if (parse_number(line.substr(line.rfind(' ') + 1), count)) known += count;
    }
    constexpr std::uint64_t all = 0xFFFF'FFFF;  // -1 is no user
    return known >= all || network_is_ours() ? std::optional(number) : std::nullopt;
}

bool peer_is_our_user(int socket) {
    return peer_user(socket) == ::geteuid();
}

PeerUsers::PeerUsers() : netlink_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {}

Holder PeerUsers::find(const SocketAddress& peer, const SocketAddress& local) {
    const auto from = key_of(peer), to = key_of(local);
    if (from.family == AF_UNSPEC || from.family != to.family) return {};
    if (netlink_.valid()) {
        const auto answer = ask_netlink(netlink_.get(), from, to);
        // A client that is bound to an interface is not found, and without the kernel's module nobody is.
        if (answer && (answer->is_here || !own_addresses_.contains(peer.numeric()))) return *answer;
    }
    return ask_proc(from, to);
}

PeerUsers::Judgement PeerUsers::judge(int fd, const SocketAddress& peer) {
    const auto [is_here, user] = find(peer, SocketAddress::local_of(fd));
    // One of this host's addresses without a socket: its process has reset the connection, and what it sent may wait.
    if (!is_here && !own_addresses_.contains(peer.numeric())) return {};
    if (user && (*user == 0 || *user == ::geteuid() || *user == ::getuid())) return {.is_own = true, .objection = {}};
    const auto who =
        user ? cat("user ", *user, " of this host")
             : std::string("a process of this host that has closed it, or whose user the kernel does not report");
    return {.is_own = false,
            .objection = cat("the connection comes from ", who, ", and this port serves user ", ::geteuid(),
                             " and root only; use one of these users, or start the program at the port "
                             "with --local-users=all")};
}

}  // namespace muster
