// Connections of a large group that are made at first use: what is refused, and what both ranks learn when it fails.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/own_process.h"
#include "tests/support/ranks.h"
#include "worker_runtime/tcp/control_watch.h"
#include "worker_runtime/tcp/mesh/tcp_call.h"
#include "worker_runtime/tcp/mesh/tcp_hello.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_parts.h"
#include "worker_runtime/transport/fd_watch.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::Findings;
using test::join_over_tcp;
using test::run_as_threads;
using test::within;

namespace {

constexpr int size = 40;

TcpCard card_of(const GroupTerms& terms, int rank) {
    const auto text = terms.place->collect({cat("world/tcp/", rank)}, within(60s).deadline).value();
    return decode_card(text.front()).value();
}

/// True if `rank` answers a connection that says this to it.
bool is_answered(const TcpCard& card, const TcpHello& hello, TcpPair pair) {
    const auto address = SocketAddress::from_numeric(card.places[0].address, card.places[0].port);
    const FileDescriptor socket(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address->data(), address->size()) != 0) return false;
    const auto words = encode(hello, at_place(std::move(pair), *address));
    (void)!::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL);
    char answer = 0;
    return ::recv(socket.get(), &answer, 1, 0) > 0;
}

/// A barrier of threads: nobody goes on before all have come.
class Together {
  public:
    void meet() {
        const int turn = ++count_;
        while (count_ < (turn + size - 1) / size * size) std::this_thread::sleep_for(1ms);
    }

  private:
    std::atomic<int> count_ = 0;
};

}  // namespace

TEST_CASE("a group that stands takes no connection without the key of its round, nor one that it has") {
    Findings findings;
    Together together;
    const WireSecurity security{.key = std::string(32, 'k')};
    run_as_threads(size, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        terms.security = security;
        const auto world = join_over_tcp(terms);
        findings.expect(carry_out(*world, barrier()), "barrier");
        if (terms.rank == 0) {
            const auto own = card_of(terms, 0), theirs = card_of(terms, 3);
            const TcpPair pair{.group = "world", .security = security, .caller = own.token, .called = theirs.token};
            const auto hello = [](std::uint32_t from, std::uint32_t to, TcpPurpose purpose) {
                return TcpHello{.from = from, .to = to, .purpose = purpose};
            };
            const auto up = TcpPurpose::transfer_up;
            auto wrong_key = pair;
            wrong_key.security.key = std::string(32, 'x');
            findings.expect(!is_answered(theirs, hello(0, 3, up), wrong_key), "another key");
            auto no_key = pair;
            no_key.security.key.clear();
            findings.expect(!is_answered(theirs, hello(0, 3, up), no_key), "no key");
            auto other_group = pair;
            other_group.group = "world/0";
            findings.expect(!is_answered(theirs, hello(0, 3, up), other_group), "another group");
            findings.expect(!is_answered(theirs, hello(0, 3, TcpPurpose::lane), pair), "a lane of no partner");
            findings.expect(!is_answered(theirs, hello(5, 3, up), pair), "a higher rank");
            findings.expect(!is_answered(theirs, hello(1, 3, up), pair), "another rank's token");
            // A partner has its control connection already.
            const auto partner = card_of(terms, 4);
            auto with_partner = pair;
            with_partner.called = partner.token;
            findings.expect(!is_answered(partner, hello(0, 4, TcpPurpose::control), with_partner), "a second control");
        }
        together.meet();
        // What was refused is in nobody's way.
        float value = terms.rank == 0 ? 7 : 0;
        const auto all = Buffer{&value, 1, DataType::f32};
        if (terms.rank == 0) findings.expect(carry_out(*world, send(all, 3)), "send");
        if (terms.rank == 3) findings.expect(carry_out(*world, receive(all, 0)), "receive");
        if (terms.rank == 3) findings.expect(value == 7, "what was received");
        together.meet();
        if (terms.rank == 0) {
            const auto own = card_of(terms, 0), theirs = card_of(terms, 3);
            const TcpPair pair{.group = "world", .security = security, .caller = own.token, .called = theirs.token};
            const TcpHello again{.from = 0, .to = 3, .purpose = TcpPurpose::transfer_up};
            findings.expect(!is_answered(theirs, again, pair), "a connection that stands already");
        }
        findings.expect(carry_out(*world, barrier()), "the last barrier");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("more silent strangers than a rank keeps do not keep a late connection away") {
    Findings findings;
    Together together;
    std::vector<FileDescriptor> strangers;
    run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        if (terms.rank == 0) {
            const auto place = card_of(terms, 3).places[0];
            const auto address = SocketAddress::from_numeric(place.address, place.port);
            for (std::size_t i = 0; i < 3 * unknown_callers_max; ++i) {
                FileDescriptor socket(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
                if (::connect(socket.get(), address->data(), address->size()) == 0)
                    strangers.push_back(std::move(socket));
            }
        }
        together.meet();
        float value = 1;
        const auto all = Buffer{&value, 1, DataType::f32};
        if (terms.rank == 0) findings.expect(carry_out(*world, send(all, 3)), "send");
        if (terms.rank == 3) findings.expect(carry_out(*world, receive(all, 0)), "receive");
        findings.expect(carry_out(*world, barrier()), "barrier");
    });
    CHECK(strangers.size() > unknown_callers_max);
    CHECK(findings.text() == "");
}

/// Rank `waiting` waits so long for a message of rank `absent`, which never comes.
void require_named(int waiting, int absent, Duration limit) {
    Findings findings;
    std::atomic<bool> failed = false;
    run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        findings.expect(test::all_come(terms, "joined"), "not all came");
        float value = 1;
        if (terms.rank == waiting) {
            const auto began = std::chrono::steady_clock::now();
            findings.expect_error(world->transfer(receive({&value, 1, DataType::f32}, absent), within(limit)),
                                  {"receive f32 x 1", cat("rank ", absent, " (pid "), "did not reach it"});
            findings.expect(std::chrono::steady_clock::now() - began < 55s, "it took too long");
            failed = true;
        }
        while (!failed) std::this_thread::sleep_for(1ms);
    });
    INFO(waiting << " waits " << limit.count() << " ns");
    CHECK(findings.text() == "");
}

TEST_CASE("a message between ranks that are no partners ends at its deadline if the other never comes") {
    // The lower rank calls, and the higher one waits for a call: both must end.
    require_named(0, 3, 300ms);
    require_named(3, 0, 300ms);
}

TEST_CASE("whoever gives up a call at its deadline is not taken for dead, however many connections stand by then") {
    // A call takes about half a millisecond, so some of these end in the middle of one.
    for (const auto limit : {200us, 300us, 400us, 600us, 2000us}) require_named(0, 3, limit);
}

TEST_CASE(
    "who waits for a rank that waits for others names the last of them, over ranks that it has no connection with") {
    Findings findings;
    Together together;
    std::atomic<int> failed = 0;
    run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        float value = 1;
        const auto all = Buffer{&value, 1, DataType::f32};
        const auto fails = [&](int from, Duration limit) {
            findings.expect_error(world->transfer(receive(all, from), within(limit)),
                                  {"receive f32 x 1", "timed out: rank 28 (pid "});
            ++failed;
        };
        together.meet();
        if (terms.rank == 5) fails(8, 5s);
        if (terms.rank == 8) fails(17, 60s);
        if (terms.rank == 17) fails(28, 60s);
        // A rank that leaves before all three know is another failure, and its end may overtake the news.
        while (failed < 3) std::this_thread::sleep_for(1ms);
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a late rank that needs nothing more of the others fails in the operation that its partners have given up") {
    Findings findings;
    std::atomic<int> waiting = 0;
    run_as_threads(size, [&](const GroupTerms& terms) {
        auto parts = connect_tcp(terms, {.addresses = {"127.0.0.1"}}).value();
        auto* const group = parts.group.get();
        const auto world = tcp_transport_over(std::move(parts), TcpAlgorithm::automatic);
        ControlWatch ears(*group, FdWatch::start().value());
        const auto hear = [group](int rank) {
            const auto over = group->receive_or_lose(rank);
            return over && !*over;
        };
        findings.expect(ears.begin(hear), "begin");
        float value = 1;
        const auto operation = broadcast(Buffer{&value, 1, DataType::f32}, 0);
        if (terms.rank != 17) {
            const auto limit = within(5s);
            for (++waiting; waiting < size - 1;) std::this_thread::sleep_for(1ms);
            // Partners of the late one wait for it; who needs nothing of it fails in the next operation.
            auto done = world->run(operation, limit);
            if (done) done = world->run(barrier(), within(60s));
            return findings.expect_error(done, {"operation 1 (broadcast", "rank 17 (pid ", "timed out"});
        }
        while (waiting < size - 1) std::this_thread::sleep_for(1ms);
        // The moment is what counts: its partners have given up, and look for who is late.
        for (const auto end = std::chrono::steady_clock::now() + 60s;
             !group->gave_up(1) && std::chrono::steady_clock::now() < end;)
            std::this_thread::sleep_for(1ms);
        findings.expect_error(world->run(operation, within(60s)),
                              {"operation 1 (broadcast", "rank 17 (pid ", "timed out"});
    });
    CHECK(findings.text() == "");
}

TEST_CASE("whoever watches a group's connections learns of a failure that comes over a late one") {
    // A node's shared memory ends with it, even if no partner passes the news on: here rank 3 is deaf to partners.
    Findings findings;
    Together together;
    std::atomic<bool> told = false;
    run_as_threads(size, [&](const GroupTerms& terms) {
        auto parts = connect_tcp(terms, {.addresses = {"127.0.0.1"}}).value();
        std::string heard;
        ControlWatch ears(*parts.group, FdWatch::start().value());
        const auto hear = [](int) { return false; };
        const auto failed = [&](const Error& why) {
            heard = why.context;
            if (terms.rank == 3) told = true;
        };
        findings.expect(ears.begin(hear, failed), "begin");
        if (terms.rank == 0) findings.expect(parts.group->link(3, within(60s)), "the link of 0");
        if (terms.rank == 3) findings.expect(parts.group->link(0, within(60s)), "the link of 3");
        together.meet();
        if (terms.rank == 0) parts.group->fail(Errc::cancelled, "enough");
        for (const auto end = std::chrono::steady_clock::now() + 60s; !told && std::chrono::steady_clock::now() < end;)
            std::this_thread::sleep_for(1ms);
        findings.expect(told, "rank 3 was not told");
        together.meet();
        if (terms.rank == 3) findings.expect(heard == "enough", "what it was told");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a rank that left in order cannot be called any more, and is named") {
    Findings findings;
    std::atomic<bool> gone = false;
    std::atomic<int> failed = 0;
    run_as_threads(size, [&](const GroupTerms& terms) {
        auto world = join_over_tcp(terms);
        findings.expect(carry_out(*world, barrier()), "barrier");
        float value = 1;
        if (terms.rank == 3) {
            world.reset();
            gone = true;
            return;
        }
        while (!gone) std::this_thread::sleep_for(1ms);
        if (terms.rank == 0) {
            findings.expect_error(carry_out(*world, send({&value, 1, DataType::f32}, 3)),
                                  {"rank 3 (pid ", "cannot be reached"});
            ++failed;
        }
        while (failed < 1) std::this_thread::sleep_for(1ms);
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks of a large group that run different operations are named on all ranks") {
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        // An all_gather, because its data goes straight into the caller's memory.
        const std::size_t count = terms.rank == 13 ? 30 : 20;
        const std::vector<float> own(count, 1.0f);
        std::vector<float> all(size * count, -1.0f);
        findings.expect_error(
            carry_out(*world, all_gather({own.data(), own.size(), DataType::f32}, buffer(std::span(all)))),
            {"rank 13 (pid ", "f32 x 30", "f32 x 20"});
        for (int from = 0; from < size; ++from) {
            if (from == terms.rank || (from != 13 && terms.rank != 13)) continue;
            const auto piece = std::span(all).subspan(static_cast<std::size_t>(from) * count, count);
            const bool untouched = std::all_of(piece.begin(), piece.end(), [](float one) { return one == -1.0f; });
            findings.expect(untouched, cat("rank ", terms.rank, ": data of rank ", from, " came"));
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks of a large group that differ in whether an average has weights are told so") {
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        std::vector<float> data(20, 1.0f);
        const auto all = buffer(std::span(data));
        findings.expect_error(
            carry_out(*world, terms.rank == 13 ? all_reduce_weighted(all, 2) : all_reduce(all, ReduceOp::avg)),
            {"rank 13 (pid ", "all_reduce avg f32 x 20 weighted"});
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a large group says that it cannot receive from any rank, and goes on") {
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        const auto there = world->incoming((terms.rank + 1) % size);
        findings.expect_error(there ? Result<void>() : there.error(),
                              {"receive from any rank", "more than 32 ranks", "name the rank to receive from"});
        findings.expect(carry_out(*world, barrier()), "barrier");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("large groups leave neither descriptors nor threads behind, also where they were connected late") {
    const auto cycle = [](bool fails) {
        run_as_threads(size, [fails](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            float value = 1, other = 0;
            std::thread sender([&] {
                (void)carry_out(*world, send({&value, 1, DataType::f32}, (terms.rank + 3) % size));
            });
            (void)carry_out(*world, receive({&other, 1, DataType::f32}, (terms.rank + size - 3) % size));
            sender.join();
            if (fails && terms.rank == 1) world->abort("enough");
            (void)carry_out(*world, barrier());
        });
    };
    cycle(false);
    const test::Holdings before;
    for (int i = 0; i < 3; ++i) {
        cycle(false);
        cycle(true);
    }
    CHECK(before.left_over_by(std::chrono::steady_clock::now() + 60s) == "");
}

}  // namespace muster
