#include "rendezvous/net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <utility>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

constexpr auto patience = 60s;

class Reader final : public EventLoop::Handler {
  public:
    explicit Reader(std::function<void()> on_ready) : on_ready_(std::move(on_ready)) {}
    void ready(std::uint32_t, Instant) override { on_ready_(); }

  private:
    std::function<void()> on_ready_;
};

class Alarm final : public EventLoop::Ticker {
  public:
    explicit Alarm(Instant at) : at_(at) {}
    Instant turn(Instant now) override {
        if (now < at_) return at_;
        rung.set_value(now);
        return at_ = no_deadline;
    }
    std::promise<Instant> rung;

  private:
    Instant at_;
};

}  // namespace

TEST_CASE("posted work runs in order on the loop's thread") {
    EventLoop loop;
    std::vector<int> order;
    std::thread::id where;
    loop.start_thread();
    for (int i = 0; i < 100; ++i) loop.post([&order, i] { order.push_back(i); });
    loop.invoke([&] { where = std::this_thread::get_id(); });
    CHECK(where != std::this_thread::get_id());
    REQUIRE(order.size() == 100);
    CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("invoke runs at once where no loop is running") {
    EventLoop loop;
    bool ran = false;
    loop.invoke([&] { ran = true; });
    CHECK(ran);
}

TEST_CASE("invoke within the loop does not wait for itself") {
    EventLoop loop;
    loop.start_thread();
    bool ran = false;
    loop.invoke([&] { loop.invoke([&] { ran = true; }); });
    CHECK(ran);
}

TEST_CASE("many threads may post, invoke and stop at the same time, and nobody is left waiting") {
    for (int i = 0; i < 50; ++i) {
        EventLoop loop;
        loop.start_thread();
        std::atomic<int> ran = 0;
        std::vector<std::thread> callers;
        for (int caller = 0; caller < 4; ++caller) {
            callers.emplace_back([&] {
                for (int n = 0; n < 20; ++n) loop.invoke([&] { ++ran; });
            });
        }
        callers.emplace_back([&] { loop.stop(); });
        for (auto& caller : callers) caller.join();
        CHECK(ran == 80);
    }
}

TEST_CASE("a ticker is called when its deadline has come, and not much later") {
    EventLoop loop;
    const Instant start = std::chrono::steady_clock::now();
    Alarm alarm(start + 20ms);
    loop.add(alarm);
    loop.start_thread();
    auto rung = alarm.rung.get_future();
    REQUIRE(rung.wait_for(patience) == std::future_status::ready);
    CHECK(rung.get() >= start + 20ms);
    loop.invoke([&] { loop.remove(alarm); });
}

TEST_CASE("a ticker that retires a handler has the others asked again at once, those before it too") {
    struct Told final : EventLoop::Ticker {
        explicit Told(std::function<void()> on_turn) : on_turn_(std::move(on_turn)) {}
        Instant turn(Instant) override {
            on_turn_();
            return no_deadline;
        }
        std::function<void()> on_turn_;
    };
    EventLoop loop;
    const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    auto reader = std::make_unique<Reader>([] {});
    REQUIRE(loop.add(fd, EPOLLIN, *reader).has_value());
    bool has_ended = false;
    std::promise<void> asked;
    Told first([&] {
        if (std::exchange(has_ended, false)) asked.set_value();
    });
    Told second([&] {
        if (!reader) return;
        loop.remove(fd, *reader);
        loop.retire(std::move(reader));
        has_ended = true;
    });
    loop.add(first);
    loop.add(second);
    loop.start_thread();
    CHECK(asked.get_future().wait_for(patience) == std::future_status::ready);
    loop.invoke([&] {
        loop.remove(first);
        loop.remove(second);
    });
    ::close(fd);
}

TEST_CASE("posted work may destroy a handler whose event was fetched with it") {
    EventLoop loop;
    const int fd = ::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    bool destroyed = false;
    bool called_after = false;
    auto reader = std::make_unique<Reader>([&] { called_after = called_after || destroyed; });
    // The loop's own wake-up was added first, so it is the first of the batch.
    REQUIRE(loop.add(fd, EPOLLIN, *reader).has_value());
    std::promise<void> done;
    loop.post([&] {
        loop.remove(fd, *reader);
        reader.reset();
        destroyed = true;
        loop.post([&] { done.set_value(); });
    });
    loop.start_thread();
    REQUIRE(done.get_future().wait_for(patience) == std::future_status::ready);
    CHECK_FALSE(called_after);
    ::close(fd);
}

TEST_CASE("a handler that was retired hears nothing more, not even of events that were already fetched") {
    EventLoop loop;
    const int first = ::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    const int second = ::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    int calls = 0;
    std::unique_ptr<Reader> readers[2];
    // Both are ready in one batch; whoever comes first retires both.
    const auto retire_both = [&] {
        ++calls;
        for (auto& [fd, reader] : {std::pair{first, &readers[0]}, std::pair{second, &readers[1]}}) {
            loop.remove(fd, **reader);
            loop.retire(std::move(*reader));
        }
    };
    for (auto& reader : readers) reader = std::make_unique<Reader>(retire_both);
    REQUIRE(loop.add(first, EPOLLIN, *readers[0]).has_value());
    REQUIRE(loop.add(second, EPOLLIN, *readers[1]).has_value());
    loop.start_thread();
    std::promise<void> later;
    loop.post([&] { loop.post([&] { later.set_value(); }); });
    REQUIRE(later.get_future().wait_for(patience) == std::future_status::ready);
    loop.invoke([] {});
    int seen = 0;
    loop.invoke([&] { seen = calls; });
    CHECK(seen == 1);
    ::close(first);
    ::close(second);
}
