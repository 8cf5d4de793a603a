// A rank dies, or aborts, in each phase of split(): after each call with which it makes the new group. All others learn
// which one it was there and then, and whatever they had of the new group goes.
//
// This program has the system calls with which groups are made as functions of its own, which count.
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/hierarchical/node_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/own_process.h"
#include "tests/support/ranks.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/context/make_transport.h"
#include "worker_runtime/transport/wait_board.h"

namespace {

/// Calls of this thread until its fate; negative: it has none.
thread_local int calls_left = -1;
thread_local void (*fate)() = nullptr;

void count() {
    if (calls_left > 0 && --calls_left == 0) fate();
}

template <class T>
T counted(T result) {
    if (result >= 0) count();
    return result;
}

}  // namespace

extern "C" {

int socket(int domain, int type, int protocol) noexcept {
    return static_cast<int>(counted(::syscall(SYS_socket, domain, type, protocol)));
}

int connect(int fd, const struct sockaddr* address, socklen_t size) {
    const auto result = ::syscall(SYS_connect, fd, address, size);
    count();
    return static_cast<int>(result);
}

int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
    return static_cast<int>(counted(::syscall(SYS_accept4, fd, address, size, flags)));
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
    return counted(::syscall(SYS_sendto, fd, data, size, flags, nullptr, 0));
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
    return counted(::syscall(SYS_sendmsg, fd, message, flags));
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    return counted(::syscall(SYS_recvmsg, fd, message, flags));
}

ssize_t recv(int fd, void* data, size_t size, int flags) {
    return counted(::syscall(SYS_recvfrom, fd, data, size, flags, nullptr, nullptr));
}

int memfd_create(const char* name, unsigned flags) noexcept {
    return static_cast<int>(counted(::syscall(SYS_memfd_create, name, flags)));
}

}  // extern "C"

namespace muster {

using namespace runtime;

namespace {

constexpr int victim = 1;

struct Case {
    const char* name;
    int size;
    TransportChoice choice;
    std::function<int(int rank)> node;
    std::function<int(int rank)> color;
};

int all_one(int /*rank*/) {
    return 0;
}

Case of_two_parts(TransportChoice choice) {
    return {choice == TransportChoice::tcp ? "tcp, two parts" : "shared memory, two parts", 4, choice, all_one,
            [](int rank) { return rank % 2; }};
}

Communicator join(GroupTerms group, const Case& one) {
    group.place = std::make_shared<test::CountedPlace>(group.place, count);
    group.waits = std::make_shared<WaitBoard>();
    TransportTerms terms{.choice = one.choice,
                         .addresses = {"127.0.0.1"},
                         .node = one.node(group.rank),
                         .watch = FdWatch::start().value()};
    CommunicatorBody::Terms body{.group = group, .timeout = 60s, .make_transport = [terms](const GroupTerms& part) {
                                     return make_transport(part, terms);
                                 }};
    auto transport = body.make_transport(group).value();
    return Communicator(std::make_shared<CommunicatorBody>(std::move(body), std::move(transport)));
}

/// What a rank that lives finds wrong: the split fails, or an operation behind it, and that names the victim.
std::string survive(Communicator& world, int color, const std::function<void()>& is_split) {
    Result<void> done;
    {
        const auto part = world.split(color, world.rank());
        is_split();
        if (!part) done = part.error();
        // Whoever has a part is not alone in it.
        if (part) (void)(*part)->run(barrier());
        while (done) done = world.run(barrier());
    }
    const auto& text = done.error().context;
    const bool is_own = world.rank() == victim && text.find("was aborted: on purpose") != std::string::npos;
    return is_own || text.find(cat("rank ", victim, " (pid ")) != std::string::npos ? "" : text;
}

int print_error(const GroupTerms& terms, const std::string& wrong) {
    if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", terms.rank, wrong.c_str());
    return wrong.empty() ? 0 : 1;
}

/// Nobody waits for a deadline, which is a minute.
constexpr auto patience = std::chrono::seconds(55);
/// The victim was quicker with its split than with so many calls.
constexpr int is_late = 7;

/// True where the victim was late.
bool require_good_ends(test::RankProcesses& ranks, const Case& one, const std::string& what) {
    const auto ends = ranks.join(patience);
    INFO(one.name << ": " << what);
    for (int rank = 0; rank < one.size; ++rank) {
        const auto& end = ends[static_cast<std::size_t>(rank)];
        INFO("rank " << rank << (end.exited ? " exited " : " ended by signal ") << end.code);
        const bool good = end.exited ? end.code == 0 || (rank == victim && end.code == is_late)
                                     : rank == victim && end.code == SIGKILL;
        CHECK(good);
    }
    return ends[victim].exited && ends[victim].code == is_late;
}

/// The victim is killed after so many calls in its split.
bool killed_after(int calls, const Case& one) {
    test::RankProcesses ranks(one.size, [&](const GroupTerms& terms) {
        auto world = join(terms, one);
        const int color = one.color(terms.rank);
        if (terms.rank != victim) return print_error(terms, survive(world, color, [] {}));
        if (calls == 0) ::raise(SIGKILL);
        calls_left = calls;
        fate = [] { ::raise(SIGKILL); };
        const auto part = world.split(color, terms.rank);
        ::_exit(part ? is_late : 1);  // without a word, as if killed
    });
    return require_good_ends(ranks, one, cat("killed after ", calls, " calls"));
}

std::atomic<int> aborts = 0;

void want_abort() {
    aborts = 1;
    aborts.notify_all();
}

/// Another thread of the victim aborts after so many calls in its split.
bool aborted_after(int calls, const Case& one) {
    test::RankProcesses ranks(one.size, [&](const GroupTerms& terms) {
        const test::Holdings before;
        std::string wrong;
        bool late = false;
        {
            auto world = join(terms, one);
            std::thread aborter;
            if (terms.rank == victim) {
                aborter = std::thread([&world] {
                    aborts.wait(0);
                    world.abort("on purpose");
                });
                calls_left = calls;
                fate = want_abort;
                if (calls == 0) want_abort();
            }
            wrong = survive(world, one.color(terms.rank), [&] {
                calls_left = -1;
                late = terms.rank == victim && aborts == 0;
                want_abort();
            });
            if (aborter.joinable()) aborter.join();
        }
        if (wrong.empty()) wrong = before.left_over_by(std::chrono::steady_clock::now() + 30s);
        const int code = print_error(terms, wrong);
        return code == 0 && late ? is_late : code;
    });
    return require_good_ends(ranks, one, cat("aborted after ", calls, " calls"));
}

void require_told_at_each_call(const std::function<bool(int calls, const Case& one)>& happens_after) {
    const Case cases[] = {
        {"shared memory", 3, TransportChoice::shared_memory, all_one, all_one},
        of_two_parts(TransportChoice::shared_memory),
        {"tcp", 3, TransportChoice::tcp, all_one, all_one},
        of_two_parts(TransportChoice::tcp),
        {"hierarchical", 4, TransportChoice::hierarchical, [](int rank) { return rank / 2; }, all_one},
    };
    for (const auto& one : cases) {
        int calls = 0;
        while (calls < 500 && !happens_after(calls, one)) ++calls;
        INFO(one.name);
        CHECK(calls > 5);
        CHECK(calls < 500);
    }
}

}  // namespace

TEST_CASE("a rank that is killed in a split is named by all others, after each of its calls") {
    require_told_at_each_call(killed_after);
}

TEST_CASE("an abort in a split ends it on all ranks, after each of a rank's calls, and leaves nothing of the part") {
    require_told_at_each_call(aborted_after);
}

}  // namespace muster
