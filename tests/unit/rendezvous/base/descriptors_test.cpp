// Datagrams with descriptors, the standard streams, and threads that take no signals.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <latch>
#include <string>

#include "rendezvous/base/sockets/datagram.h"
#include "rendezvous/base/system/standard_streams.h"
#include "rendezvous/base/thread_start.h"
#include "tests/support/catch.h"

using namespace muster;

namespace {

struct Sockets {
    Sockets() {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        ours = FileDescriptor(ends[0]);
        theirs = FileDescriptor(ends[1]);
    }
    FileDescriptor ours;
    FileDescriptor theirs;
};

}  // namespace

TEST_CASE("a datagram arrives whole, with its descriptors, and nothing waits where none is") {
    Sockets sockets;
    CHECK_FALSE(receive_datagram(sockets.ours.get(), 100, 2));
    CHECK(errno == EAGAIN);
    int pipe_ends[2];
    REQUIRE(::pipe2(pipe_ends, O_CLOEXEC) == 0);
    const FileDescriptor out(pipe_ends[0]);
    const FileDescriptor in(pipe_ends[1]);
    const std::array<int, 2> both{in.get(), out.get()};
    REQUIRE(send_datagram(sockets.theirs.get(), "hello", both) == 0);
    const auto datagram = receive_datagram(sockets.ours.get(), 100, 2);
    REQUIRE(datagram);
    CHECK(datagram->bytes == "hello");
    CHECK_FALSE(datagram->cut);
    REQUIRE(datagram->descriptors.size() == 2);
    CHECK(::fcntl(datagram->descriptors[0].get(), F_GETFD) == FD_CLOEXEC);
    REQUIRE(::write(datagram->descriptors[0].get(), "x", 1) == 1);
    char byte = 0;
    CHECK(::read(out.get(), &byte, 1) == 1);
}

TEST_CASE("a datagram that is longer or carries more than the receiver takes is known as cut") {
    Sockets sockets;
    REQUIRE(send_datagram(sockets.theirs.get(), "too long", {}) == 0);
    CHECK(receive_datagram(sockets.ours.get(), 3, 0)->cut);
    const std::array<int, 2> two{0, 1};
    REQUIRE(send_datagram(sockets.theirs.get(), "x", two) == 0);
    CHECK(receive_datagram(sockets.ours.get(), 3, 1)->cut);
}

TEST_CASE("the other end's going is an empty datagram for the reader and an error for the writer") {
    Sockets sockets;
    sockets.theirs.reset();
    CHECK(receive_datagram(sockets.ours.get(), 3, 1)->bytes.empty());
    CHECK(send_datagram(sockets.ours.get(), "x", {}) == EPIPE);
}

TEST_CASE("the last datagrams of an end that has closed with unread ones are read") {
    Sockets sockets;
    REQUIRE(send_datagram(sockets.ours.get(), "unread", {}) == 0);
    REQUIRE(send_datagram(sockets.theirs.get(), "last", {}) == 0);
    sockets.theirs.reset();
    const auto last = receive_datagram(sockets.ours.get(), 10, 0);
    REQUIRE(last);
    CHECK(last->bytes == "last");
    CHECK(receive_datagram(sockets.ours.get(), 10, 0)->bytes.empty());
}

TEST_CASE("closed standard streams are opened, and open ones left alone") {
    const pid_t child = ::fork();
    if (child == 0) {
        int pipe_ends[2];
        if (::pipe(pipe_ends) != 0) ::_exit(2);
        ::dup2(pipe_ends[1], 1);
        ::close(0);
        ::close(2);
        const bool opened = open_missing_standard_streams();
        char byte = 0;
        const bool right = opened && ::write(1, "x", 1) == 1 && ::read(pipe_ends[0], &byte, 1) == 1 &&
                           ::write(2, "y", 1) == 1 && ::read(0, &byte, 1) == 0;
        ::_exit(right ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
}

TEST_CASE("a thread of ours takes no signal, bears its name, and leaves the mask of its starter as it was") {
    sigset_t before, after, inside;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
    char name[16] = {};
    std::latch named(1);  // the thread lives until then
    auto started = start_thread("muster-test", [&] {
        ::pthread_sigmask(SIG_SETMASK, nullptr, &inside);
        named.wait();
    });
    REQUIRE(started.has_value());
    ::pthread_getname_np(started->native_handle(), name, sizeof name);
    named.count_down();
    started->join();
    CHECK(std::string(name) == "muster-test");
    ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
    CHECK(::sigismember(&inside, SIGTERM) == 1);
    CHECK(::sigismember(&inside, SIGINT) == 1);
    CHECK(::sigismember(&after, SIGTERM) == ::sigismember(&before, SIGTERM));
}
