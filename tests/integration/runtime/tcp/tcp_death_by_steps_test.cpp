// A rank dies in each phase of each operation over TCP: after each call in which it moved bytes. The others learn which
// one it was there and then, in the operation or, where they have all that they need of it, in the next one.
//
// This program has the system calls of the transport's data as functions of its own, which count.
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace {

/// Calls that the rank lives to see the end of; negative: all.
std::atomic<int> calls_left = -1;

ssize_t counted(ssize_t moved) {
    if (moved > 0 && calls_left > 0 && --calls_left == 0) ::raise(SIGKILL);
    return moved;
}

}  // namespace

extern "C" ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
    return counted(::syscall(SYS_sendmsg, fd, message, flags));
}

extern "C" ssize_t readv(int fd, const struct iovec* parts, int count) {
    return counted(::syscall(SYS_readv, fd, parts, count));
}

extern "C" ssize_t recv(int fd, void* data, size_t size, int flags) {
    return counted(::syscall(SYS_recvfrom, fd, data, size, flags, nullptr, nullptr));
}

namespace muster {

using namespace runtime;

namespace {

constexpr int size = 3;
constexpr int victim = 1;

using Once = std::function<Result<void>(Transport&, int rank)>;

/// The victim dies after so many calls in the operation. True where it has lived through it.
bool lives_through(int calls, const Once& once, TcpAlgorithm algorithm) {
    test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
        const auto world = test::join_over_tcp(terms, "127.0.0.1", 0, algorithm);
        if (terms.rank == victim) {
            if (calls == 0) ::raise(SIGKILL);
            calls_left = calls;
            const auto done = once(*world, terms.rank);
            calls_left = -1;
            return done ? 0 : 1;
        }
        auto done = once(*world, terms.rank);
        const bool whole = done.has_value();
        if (whole) done = world->run(barrier(), test::within(60s));
        if (done) return 2;
        const auto& text = done.error().context;
        const bool named = text.find(cat("rank ", victim, " (pid ")) != std::string::npos;
        if (!named) (void)!::write(STDERR_FILENO, text.c_str(), text.size());
        return named ? 0 : 3;
    });
    const auto ends = ranks.join();
    CHECK((ends[0].exited && ends[0].code == 0));
    CHECK((ends[2].exited && ends[2].code == 0));
    const auto& end = ends[victim];
    CHECK(end.code == (end.exited ? 0 : SIGKILL));
    return end.exited;
}

void require_told_at_each_call(const char* name, const Once& once, TcpAlgorithm algorithm = TcpAlgorithm::automatic) {
    int calls = 0;
    for (; calls < 500; ++calls) {
        INFO(name << ", after " << calls << " calls");
        if (lives_through(calls, once, algorithm)) break;
    }
    INFO(name);
    CHECK(calls > 0);
    CHECK(calls < 500);
}

}  // namespace

TEST_CASE("a rank that dies is named by all others after each call of each operation over TCP") {
    static std::vector<float> data(size * 40'000), other(size * 40'000);
    const auto large = buffer(std::span(data.data(), 40'000));
    const auto small = buffer(std::span(data.data(), 100));
    const ConstBuffer wide(data.data(), data.size(), DataType::f32);
    const auto out = buffer(std::span(other));
    const auto piece = buffer(std::span(other.data(), 40'000));
    const auto always = [](const Operation& operation) -> Once {
        return [operation](Transport& world, int) { return world.run(operation, test::within(60s)); };
    };
    require_told_at_each_call("barrier", always(barrier()));
    require_told_at_each_call("small all_reduce", always(all_reduce(small, ReduceOp::sum)));
    require_told_at_each_call("large all_reduce", always(all_reduce(large, ReduceOp::avg)));
    require_told_at_each_call("from rank to rank", always(all_reduce(large, ReduceOp::avg)), TcpAlgorithm::ring);
    require_told_at_each_call("reduce_scatter", always(reduce_scatter(wide, piece, ReduceOp::max)));
    require_told_at_each_call("all_gather", always(all_gather(large, out)));
    require_told_at_each_call("broadcast of the victim", always(broadcast(large, victim)));
    require_told_at_each_call("broadcast of another", always(broadcast(large, 0)));
    require_told_at_each_call("all_to_all", always(all_to_all(wide, out, size)));
    const auto row = parts_in_a_row(std::vector<std::size_t>(size, 40'000));
    require_told_at_each_call("all_to_all_uneven",
                              always(all_to_all_uneven(data.data(), other.data(), DataType::f32, {row, row})));
    for (const int root : {0, victim}) {
        require_told_at_each_call("gather", always(gather(large, out, root)));
        require_told_at_each_call("scatter", always(scatter(wide, piece, root)));
        require_told_at_each_call("small reduce", always(reduce(small, piece, ReduceOp::sum, root)));
        require_told_at_each_call("large reduce", always(reduce(large, piece, ReduceOp::sum, root)));
    }
    require_told_at_each_call("allocate", [](Transport& world, int) -> Result<void> {
        const auto memory = world.allocate(100'000, test::within(60s));
        return memory ? Result<void>() : memory.error();
    });
    require_told_at_each_call("messages", [&](Transport& world, int rank) {
        Result<void> sent;
        std::thread sender([&] { sent = world.transfer(send(large, (rank + 1) % size), test::within(60s)); });
        const auto got = world.transfer(receive(piece, (rank + size - 1) % size), test::within(60s));
        sender.join();
        return got ? sent : got;
    });
}

}  // namespace muster
