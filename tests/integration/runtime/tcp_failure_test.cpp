// TCP end to end, ranks as threads: what goes wrong, and in which words all ranks learn of it.
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/socket_address.h"
#include "rendezvous/base/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/cpu/tcp_hello.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::Findings;
using test::join_over_tcp;
using test::run_as_threads;
using test::within;

namespace {

std::size_t entries_of(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// A meeting whose values a stranger reads too.
class OverheardMeeting final : public MeetingPlace {
  public:
    explicit OverheardMeeting(std::shared_ptr<MeetingPlace> place) : place_(std::move(place)) {}
    Result<void> publish(std::string_view key, std::string_view value, Instant deadline) override {
        return place_->publish(key, value, deadline);
    }
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys, Instant deadline) override {
        auto values = place_->collect(keys, deadline);
        if (values && on_values) on_values(*values);
        return values;
    }
    std::function<void(std::vector<std::string>& values)> on_values;

  private:
    std::shared_ptr<MeetingPlace> place_;
};

FileDescriptor connect_to(const TcpCard& card) {
    const auto address = SocketAddress::from_numeric(card.address, card.port);
    FileDescriptor socket(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address->data(), address->size()) != 0) socket.reset();
    return socket;
}

}  // namespace

TEST_CASE("ranks that do different things both learn what the other does, before data is touched") {
    struct Case {
        Operation first;
        Operation second;
        std::vector<std::string> words;
    };
    std::vector<float> memory(900'000, 1.0f);
    std::vector<double> doubles(900'000, 1.0);
    const auto of = [&](std::size_t count) { return buffer(std::span(memory.data(), count)); };
    const auto of_f64 = [&](std::size_t count) { return buffer(std::span(doubles.data(), count)); };
    const auto tagged = [](Operation operation, std::uint32_t tag) {
        operation.tag = tag;
        return operation;
    };
    const auto sum = ReduceOp::sum;
    const std::vector<Case> cases{
        {all_reduce(of(10), sum), all_reduce(of(11), sum), {"f32 x 10", "f32 x 11"}},
        {all_reduce(of(900'000), sum), all_reduce(of(5), sum), {"f32 x 900000", "f32 x 5"}},
        {all_reduce(of(10), sum), all_reduce(of(10), ReduceOp::max), {"all_reduce sum", "all_reduce max"}},
        {all_reduce(of(800'000), sum), all_reduce(of_f64(800'000), sum), {"f32 x 800000", "f64 x 800000"}},
        {broadcast(of(800'000), 0), broadcast(of(800'000), 1), {"from rank 0", "from rank 1"}},
        {barrier(), all_reduce(of(10), sum), {"runs barrier", "runs all_reduce"}},
        {all_reduce(of(10), sum), reduce_scatter(of(20), of(10), sum), {"all_reduce", "reduce_scatter"}},
        {all_gather(of(5), of(10)), all_to_all(of(10), of(10), 2), {"all_gather", "all_to_all"}},
        {tagged(barrier(), 7), tagged(barrier(), 8), {"tagged 7", "tagged 8"}},
        {send(of(10), 1), receive(of(11), 0), {"sends f32 x 10", "receives f32 x 11"}},
        {send(of(700'000), 1), receive(of_f64(700'000), 0), {"sends f32 x 700000", "receives f64 x 700000"}},
        {tagged(send(of(1), 1), 3), tagged(receive(of(1), 0), 4), {"tagged 3", "tagged 4"}},
    };
    for (const auto& one : cases) {
        Findings findings;
        run_as_threads(2, [&](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            auto words = one.words;
            words.insert(words.end(), {"rank 0 (pid ", "rank 1 (pid ", "communicator world"});
            findings.expect_error(carry_out(*world, terms.rank == 0 ? one.first : one.second), words);
        });
        CHECK(findings.text() == "");
        CHECK(memory == std::vector<float>(memory.size(), 1.0f));
        CHECK(doubles == std::vector<double>(doubles.size(), 1.0));
    }
}

TEST_CASE("a rank of several that differs is named on all of them") {
    Findings findings;
    run_as_threads(5, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        std::vector<float> data(terms.rank == 3 ? 30u : 20u);
        findings.expect_error(carry_out(*world, all_reduce(buffer(std::span(data)), ReduceOp::sum)),
                              {"rank 3 (pid ", "f32 x 30", "f32 x 20"});
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a rank that does not come is named at the deadline, and those with more time hear of it") {
    Findings findings;
    std::atomic<int> failed = 0;
    run_as_threads(3, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        if (terms.rank != 2) {
            const auto done = world->run(barrier(), within(terms.rank == 0 ? Duration(50ms) : Duration(3600s)));
            findings.expect_error(done, {"operation 1 (barrier)", "rank 2 (pid ", "did not come"});
            ++failed;
        }
        while (failed < 2) std::this_thread::sleep_for(1ms);
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a message that nobody takes, or sends, ends at the deadline") {
    Findings findings;
    for (const bool sends : {true, false}) {
        std::atomic<bool> failed = false;
        run_as_threads(2, [&](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            std::vector<float> data(1000);
            const auto all = buffer(std::span(data));
            if (terms.rank == 0) {
                const auto done = world->transfer(sends ? send(all, 1) : receive(all, 1), within(50ms));
                findings.expect_error(done, {sends ? "send f32 x 1000" : "receive f32 x 1000", "rank 1 (pid"});
                failed = true;
            }
            while (!failed) std::this_thread::sleep_for(1ms);
        });
    }
    CHECK(findings.text() == "");
}

TEST_CASE("an abort ends what all ranks are waiting in, at once, and says why") {
    Findings findings;
    run_as_threads(4, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        std::vector<float> data(1000);
        std::thread other;
        std::atomic<bool> waiting = false;
        if (terms.rank == 1) {
            other = std::thread([&] {
                while (!waiting) std::this_thread::yield();
                world->abort("the loss is NaN");
            });
        }
        // Ranks 0 and 2 wait for a message, 1 and 3 in a collective that the others do not join.
        waiting = true;
        const auto done = terms.rank % 2 == 0 ? world->transfer(receive(buffer(std::span(data)), 3), within(3600s))
                                              : world->run(barrier(), within(3600s));
        findings.expect_error(done, {"rank 1 (pid ", "the loss is NaN"});
        if (other.joinable()) other.join();
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a rank that leaves in order is no failure until somebody needs it") {
    Findings findings;
    std::atomic<bool> gone = false;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto world = join_over_tcp(terms);
        std::vector<float> data(100'000, 1.0f);
        findings.expect(carry_out(*world, all_reduce(buffer(std::span(data)), ReduceOp::sum)), "all_reduce");
        if (terms.rank == 2) {
            world.reset();
            gone = true;
            return;
        }
        while (!gone) std::this_thread::sleep_for(1ms);
        // The two that are left still reach each other.
        const auto done = terms.rank == 0 ? carry_out(*world, send(buffer(std::span(data)), 1))
                                          : carry_out(*world, receive(buffer(std::span(data)), 0));
        findings.expect(done, "a message between those who stayed");
        findings.expect_error(carry_out(*world, barrier()), {"rank 2 (pid ", "closed communicator world"});
    });
    CHECK(findings.text() == "");
}

TEST_CASE("the ranks that did not come to the meeting are named") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    const GroupTerms terms{.rank = 0, .size = 3, .id = "world", .place = place, .meeting_timeout = 50ms};
    const auto transport = make_tcp_transport(terms, {.address = "127.0.0.1"});
    REQUIRE_FALSE(transport.has_value());
    CHECK(transport.error().code == Errc::timed_out);
    CHECK(transport.error().context.find("ranks 1, 2 did not come") != std::string::npos);
}

TEST_CASE("a rank that published its address and went away is named, with what was tried") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    TcpCard card{.address = "127.0.0.1", .port = 1, .pid = 4711, .host = "gpu07"};
    CHECK(place->publish("world/tcp/1", encode(card), no_deadline).has_value());
    const GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = place, .meeting_timeout = 60s};
    const auto refused = make_tcp_transport(terms, {.address = "127.0.0.1"});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::unreachable);
    CHECK(refused.error().context.find("rank 1 (pid 4711 on gpu07) at 127.0.0.1 port 1 refused the connection") !=
          std::string::npos);
    // Rank 1 waits for rank 0, which published but never connects.
    card.pid = 4712;
    const auto other = std::make_shared<test::MeetingInMemory>();
    CHECK(other->publish("world/tcp/0", encode(card), no_deadline).has_value());
    const GroupTerms late{.rank = 1, .size = 2, .id = "world", .place = other, .meeting_timeout = 100ms};
    const auto alone = make_tcp_transport(late, {.address = "127.0.0.1"});
    REQUIRE_FALSE(alone.has_value());
    CHECK(alone.error().context.find("rank 0 (pid 4712 on gpu07) did not connect") != std::string::npos);
}

TEST_CASE("an address that is none, or that is not this host's, is refused with the reason") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    const GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = place};
    for (const std::string address : {"gpu07", "", "192.0.2.1"}) {
        const auto transport = make_tcp_transport(terms, {.address = address});
        REQUIRE_FALSE(transport.has_value());
        CHECK(transport.error().context.find(address) != std::string::npos);
    }
}

TEST_CASE("strangers who connect while a group forms are turned away, and the group forms") {
    Findings findings;
    std::atomic<int> turned_away = 0;
    const auto store = std::make_shared<test::MeetingInMemory>();
    run_as_threads(3, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        const auto place = std::make_shared<OverheardMeeting>(store);
        terms.place = place;
        std::vector<std::thread> strangers;
        place->on_values = [&](std::vector<std::string>& values) {
            if (terms.rank != 0) return;
            // Rank 0 has not called yet. Each stranger talks to rank 2, and one keeps silent.
            const TcpCard card = decode_card(values[2]).value();
            TcpHello hello{.from = 0, .to = 2, .purpose = TcpPurpose::control, .token = random_token()};
            const auto wrong_token = encode(hello);
            hello = {.from = 2, .to = 2, .purpose = TcpPurpose::control, .token = card.token};
            const auto wrong_rank = encode(hello);
            const std::string web = "GET / HTTP/1.1\r\nHost: somewhere-else.example\r\n\r\n";
            for (const auto& words :
                 {std::string(reinterpret_cast<const char*>(wrong_token.data()), wrong_token.size()),
                  std::string(reinterpret_cast<const char*>(wrong_rank.data()), wrong_rank.size()), web}) {
                strangers.emplace_back([&turned_away, card, words] {
                    const auto socket = connect_to(card);
                    (void)!::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL);
                    char answer = 0;
                    if (::recv(socket.get(), &answer, 1, 0) <= 0) ++turned_away;
                });
            }
            strangers.emplace_back([card] {
                const auto silent = connect_to(card);
                char answer = 0;
                (void)!::recv(silent.get(), &answer, 1, 0);
            });
            while (turned_away < 3) std::this_thread::sleep_for(1ms);
        };
        const auto world = join_over_tcp(terms);
        for (auto& stranger : strangers) stranger.join();
        findings.expect(carry_out(*world, barrier()), "barrier");
    });
    CHECK(findings.text() == "");
    CHECK(turned_away == 3);
}

TEST_CASE("groups leave neither descriptors nor threads behind, in order or by failure") {
    const auto cycle = [](bool fails) {
        run_as_threads(3, [fails](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            std::vector<float> data(10);
            if (fails && terms.rank == 1) world->abort("enough");
            (void)carry_out(*world, all_reduce(buffer(std::span(data)), ReduceOp::sum));
        });
    };
    cycle(false);
    const auto descriptors = entries_of("/proc/self/fd");
    const auto threads = entries_of("/proc/self/task");
    for (int i = 0; i < 100; ++i) {
        cycle(false);
        cycle(true);
    }
    CHECK(entries_of("/proc/self/fd") == descriptors);
    CHECK(entries_of("/proc/self/task") == threads);
}

}  // namespace muster
