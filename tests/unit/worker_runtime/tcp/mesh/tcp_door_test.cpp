// Strangers at the door of a rank whose group stands: they wait, or go, and nothing spins.
#include "worker_runtime/tcp/mesh/tcp_door.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "rendezvous/base/sockets/socket_address.h"
#include "tests/support/catch.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster::runtime {

namespace {

/// A group that expects nobody.
class NoHost final : public TcpHost {
  public:
    [[nodiscard]] const TcpCard& card(int) const override { return card_; }
    TcpWelcome welcome(const TcpHello&) override { return {}; }
    void settle(TcpStream&, TcpStream, const TcpHello&) override {}

  private:
    TcpCard card_;
};

struct Standing {
    GroupTerms terms{.rank = 1, .size = 2, .id = "world", .place = nullptr};
    NoHost host;
    std::unique_ptr<TcpDoor> door = TcpDoor::open({"127.0.0.1"}).value();
    SocketAddress at = *SocketAddress::from_numeric("127.0.0.1", door->places()[0].port);

    Result<void> serve() { return door->serve(terms, host, 0); }
    /// False when nothing comes in this time.
    [[nodiscard]] bool rings_within(Duration time) const {
        pollfd bell{door->bell().get(), POLLIN, 0};
        const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(time);
        return ::poll(&bell, 1, static_cast<int>(whole.count())) > 0;
    }
    void call(const FileDescriptor& socket) const { REQUIRE(::connect(socket.get(), at.data(), at.size()) == 0); }
};

FileDescriptor new_socket() {
    return FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

/// True once the other end has closed it.
bool is_closed_within(const FileDescriptor& socket, Duration time) {
    pollfd end{socket.get(), POLLIN, 0};
    const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(time);
    return ::poll(&end, 1, static_cast<int>(whole.count())) > 0;
}

/// While it lives, this process has no descriptor left.
class NoDescriptors {
  public:
    NoDescriptors() {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
        FileDescriptor first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        const rlimit low{std::min<rlim_t>(before_.rlim_cur, static_cast<rlim_t>(first.get()) + 1), before_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
        for (; first.valid(); first = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)))
            taken_.push_back(std::move(first));
    }
    ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;

  private:
    rlimit before_{};
    std::vector<FileDescriptor> taken_;
};

}  // namespace

TEST_CASE("who calls a rank that has no descriptor left waits until it has, and the rank neither fails nor spins") {
    Standing rank;
    const auto stranger = new_socket();
    {
        const NoDescriptors full;
        rank.call(stranger);
        REQUIRE(rank.rings_within(60s));
        const auto began = std::chrono::steady_clock::now();
        CHECK(rank.serve().has_value());
        // Unless this process stood still until the pause was over.
        const bool rings = rank.rings_within(listening_pause / 4);
        CHECK_FALSE((rings && std::chrono::steady_clock::now() - began < listening_pause));
        // It tries again by itself.
        REQUIRE(rank.rings_within(60s));
        CHECK(rank.serve().has_value());
    }
    while (rank.rings_within(60s) && rank.serve()) {
        const TcpHelloBytes nonsense{};
        (void)!::send(stranger.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
        if (is_closed_within(stranger, 10ms)) break;
    }
    CHECK(is_closed_within(stranger, 0s));
}

TEST_CASE("a rank that has no descriptor left closes the stranger that is silent for longest and hears the next one") {
    Standing rank;
    const auto silent = new_socket(), next = new_socket();
    rank.call(silent);
    REQUIRE(rank.rings_within(60s));
    REQUIRE(rank.serve().has_value());
    {
        const NoDescriptors full;
        rank.call(next);
        REQUIRE(rank.rings_within(60s));
        CHECK(rank.serve().has_value());
    }
    CHECK(is_closed_within(silent, 60s));
    const TcpHelloBytes nonsense{};
    REQUIRE(::send(next.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL) > 0);
    REQUIRE(rank.rings_within(60s));
    CHECK(rank.serve().has_value());
    CHECK(is_closed_within(next, 60s));
}

TEST_CASE("a forked child that has a stranger's connection, too, does not make the bell ring for ever") {
    Standing rank;
    auto stranger = new_socket();
    rank.call(stranger);
    REQUIRE(rank.rings_within(60s));
    REQUIRE(rank.serve().has_value());
    int lives[2];
    REQUIRE(::pipe2(lives, O_CLOEXEC) == 0);
    FileDescriptor theirs(lives[0]), ours(lives[1]);
    const pid_t child = ::fork();
    if (child == 0) {
        ours.reset();
        stranger.reset();
        char end = 0;
        (void)!::read(theirs.get(), &end, 1);
        ::_exit(0);
    }
    REQUIRE(child > 0);
    stranger.reset();
    REQUIRE(rank.rings_within(60s));
    REQUIRE(rank.serve().has_value());
    CHECK_FALSE(rank.rings_within(20ms));
    ours.reset();
    CHECK(::waitpid(child, nullptr, 0) == child);
}

TEST_CASE("strangers that say nothing go after a while, without another call") {
    Standing rank;
    const auto silent = new_socket();
    rank.call(silent);
    REQUIRE(rank.rings_within(60s));
    REQUIRE(rank.serve().has_value());
    CHECK_FALSE(is_closed_within(silent, 0s));
    REQUIRE(rank.rings_within(60s));
    CHECK(rank.serve().has_value());
    CHECK(is_closed_within(silent, 60s));
    CHECK_FALSE(rank.rings_within(20ms));
}

TEST_CASE("a rank takes a limited number of calls at a time") {
    Standing rank;
    std::vector<FileDescriptor> strangers;
    for (std::size_t i = 0; i < calls_admitted_max + 1; ++i) {
        strangers.push_back(new_socket());
        rank.call(strangers.back());
    }
    REQUIRE(rank.rings_within(60s));
    REQUIRE(rank.serve().has_value());
    // Nobody has gone, and somebody is left.
    CHECK_FALSE(is_closed_within(strangers.front(), 0s));
    REQUIRE(rank.rings_within(60s));
    REQUIRE(rank.serve().has_value());
    CHECK(is_closed_within(strangers.front(), 60s));
    CHECK_FALSE(rank.rings_within(20ms));
}

}  // namespace muster::runtime
