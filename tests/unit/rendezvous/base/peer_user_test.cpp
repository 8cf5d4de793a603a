#include "rendezvous/base/sockets/peer_user.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

#include "rendezvous/base/file_descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/other_user.h"

using namespace muster;

namespace {

constexpr uid_t another_user = 65'534;

/// A client's socket belongs to the user that creates it; as root this thread creates one for another user.
struct AsUser {
    explicit AsUser(uid_t user) { ::setfsuid(user); }
    ~AsUser() { ::setfsuid(::geteuid()); }
};

/// A connection to itself of this process, with both ends.
struct Connection {
    Connection(const char* listen, const char* call, int client_family) {
        const FileDescriptor listener(::socket(is_v6(listen) ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const auto bound = *SocketAddress::from_numeric(listen, 0);
        REQUIRE(::bind(listener.get(), bound.data(), bound.size()) == 0);
        REQUIRE(::listen(listener.get(), 1) == 0);
        client = FileDescriptor(::socket(client_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const auto target = address(call, client_family, SocketAddress::local_of(listener.get()).port());
        REQUIRE(::connect(client.get(), target.data(), target.size()) == 0);
        server = FileDescriptor(::accept4(listener.get(), peer.writable_data(), peer.writable_size(), SOCK_CLOEXEC));
        REQUIRE(server.valid());
    }
    static bool is_v6(const std::string& text) { return text.find(':') != std::string::npos; }
    /// For a client of IPv6 also an IPv4 address, mapped.
    static SocketAddress address(const std::string& call, int family, std::uint16_t port) {
        if (family == AF_INET || is_v6(call)) return *SocketAddress::from_numeric(call, port);
        sockaddr_in6 mapped{};
        mapped.sin6_family = AF_INET6;
        mapped.sin6_port = htons(port);
        REQUIRE(::inet_pton(AF_INET6, ("::ffff:" + call).c_str(), &mapped.sin6_addr) == 1);
        return *SocketAddress::from(reinterpret_cast<const sockaddr*>(&mapped));
    }
    [[nodiscard]] PeerUsers::Holder holder(PeerUsers& users) const {
        return users.find(peer, SocketAddress::local_of(server.get()));
    }

    FileDescriptor client, server;
    SocketAddress peer;
};

struct Way {
    const char* listen;
    const char* call;
    int client_family;
};
constexpr Way ways[] = {
    {"127.0.0.1", "127.0.0.1", AF_INET}, {"::1", "::1", AF_INET6},      {"::", "::1", AF_INET6},
    {"::", "127.0.0.1", AF_INET},        {"::", "127.0.0.1", AF_INET6}, {"0.0.0.0", "127.0.0.2", AF_INET6}};

/// As where a sandbox filters netlink: its socket cannot be made.
PeerUsers without_netlink() {
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = old.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    PeerUsers users;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
    return users;
}

void check_every_way(PeerUsers& users) {
    for (const auto& way : ways) {
        INFO(way.listen << " called at " << way.call << " by family " << way.client_family);
        Connection one(way.listen, way.call, way.client_family);
        CHECK(one.holder(users).user == ::geteuid());
        CHECK(users.judge(one.server.get(), one.peer).objection.empty());
        REQUIRE(::shutdown(one.client.get(), SHUT_WR) == 0);
        CHECK(one.holder(users).user == ::geteuid());
        // The kernel would report this socket as root's.
        one.client.reset();
        CHECK_FALSE(one.holder(users).user.has_value());
        CHECK(users.judge(one.server.get(), one.peer).objection.find("does not report") != std::string::npos);
    }
}

void check_another_user(PeerUsers& users) {
    if (!test::may_be_another_user()) return;
    for (const auto& way : ways) {
        INFO(way.listen << " called at " << way.call << " by family " << way.client_family);
        const auto connection = [&] {
            const AsUser stranger(another_user);
            return Connection(way.listen, way.call, way.client_family);
        }();
        CHECK(connection.holder(users).user == another_user);
        CHECK(users.judge(connection.server.get(), connection.peer).objection ==
              "the connection comes from user 65534 of this host, and this port serves user 0 and root only; use one "
              "of these users, or start the program at the port with --local-users=all");
    }
}

}  // namespace

TEST_CASE(
    "the own user is served in every family, also half-closed; a socket that its process has closed is nobody's") {
    PeerUsers users;
    check_every_way(users);
}

TEST_CASE("where netlink cannot be had, /proc/net/tcp gives the same answers") {
    auto users = without_netlink();
    check_every_way(users);
    check_another_user(users);
}

TEST_CASE("another user of this host is not served, and told so") {
    PeerUsers users;
    check_another_user(users);
}

TEST_CASE("a socket of another host is not here, and its user no matter") {
    const Connection one("127.0.0.1", "127.0.0.1", AF_INET);
    const auto elsewhere = *SocketAddress::from_numeric("192.0.2.1", 4711);
    CHECK_FALSE(PeerUsers().find(elsewhere, SocketAddress::local_of(one.server.get())).is_here);
    CHECK(PeerUsers().judge(one.server.get(), elsewhere).objection.empty());
}

TEST_CASE("in a user namespace without numbers for all users, two users without one are not taken for the same") {
    if (!test::may_be_another_user()) return;
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const auto text = "muster-test-space-" + std::to_string(::getpid());
    text.copy(name.sun_path + 1, sizeof name.sun_path - 2);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
    REQUIRE(::seteuid(another_user - 1) == 0);  // it is attested as it was at listen()
    const bool listens = ::listen(listener.get(), 8) == 0;
    REQUIRE(::seteuid(0) == 0);
    REQUIRE(listens);
    // `map` as /proc/self/uid_map takes it; empty: none. In a network of its own the child calls itself.
    const auto seen_inside = [&](std::string_view map, int network = 0) {
        const auto child = ::fork();
        if (child == 0) {
            const bool is_there = ::setresuid(2001, 2001, 2001) == 0 && ::prctl(PR_SET_DUMPABLE, 1) == 0 &&
                                  ::unshare(CLONE_NEWUSER | network) == 0;
            if (is_there && !map.empty()) {
                const FileDescriptor file(::open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
                if (::write(file.get(), map.data(), map.size()) != static_cast<ssize_t>(map.size())) ::_exit(1);
            }
            const FileDescriptor own(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
            if (network != 0 &&
                (::bind(own.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0 || ::listen(own.get(), 1) != 0))
                ::_exit(1);
            const FileDescriptor caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
            const bool called = ::connect(caller.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0;
            const char seen = !is_there || !called             ? '?'
                              : peer_is_our_user(caller.get()) ? 'o'
                              : peer_user(caller.get())        ? 'u'
                                                               : '-';
            ::_exit(::write(ends[1], &seen, 1) == 1 ? 0 : 1);
        }
        ::waitpid(child, nullptr, 0);
        char seen = 0;
        return ::read(ends[0], &seen, 1) == 1 ? seen : '!';
    };
    const char without_map = seen_inside("");
    if (without_map == '?') {
        WARN("skipped: this host permits no user namespaces");
    } else {
        CHECK(without_map == '-');                  // both are 65534 there
        CHECK(seen_inside("0 2001 1") == '-');      // the caller has a number, the listener has none
        CHECK(seen_inside("65534 2001 1") == '-');  // the caller's number is that of those without one
        CHECK(seen_inside("65534 2001 1", CLONE_NEWNET) == 'o');
    }
    for (const int end : ends) ::close(end);
}
