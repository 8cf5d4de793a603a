#include "rendezvous/net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/thread_start.h"

namespace muster::rendezvous {

namespace {

// Enough to spread the cost of epoll_wait thin; small enough that a turn stays in the cache.
constexpr std::size_t events_per_turn = 256;

int timeout_ms(Instant deadline) {
    if (deadline == no_deadline) return -1;
    const Instant now = std::chrono::steady_clock::now();
    if (deadline <= now) return 0;
    // Rounded up, so that the loop does not spin through the last fraction of a millisecond.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
    return static_cast<int>(std::min<std::int64_t>(left, 60'000));
}

Error no_watch(int number, int fd) {
    MUSTER_CHECK(number == ENOSPC || number == ENOMEM, number, fd);
    return Error{Errc::limit_exceeded, number == ENOSPC
                                           ? "this user's processes watch as many descriptors as they may; raise "
                                             "fs.epoll.max_user_watches (sysctl)"
                                           : "the kernel has no memory to watch one more descriptor"};
}

}  // namespace

struct EventLoop::Shared {
    std::mutex mutex;
    std::vector<std::function<void()>> posted;
    bool stopping = false;
    bool running = false;
    std::thread::id runner;
    int wake_fd = -1;

    void wake() const {
        const std::uint64_t one = 1;
        // Fails only when the counter is full, and then the loop is awake anyway.
        [[maybe_unused]] const auto written = ::write(wake_fd, &one, sizeof one);
    }
};

EventLoop::EventLoop() : shared_(std::make_unique<Shared>()), opened_(open()) {}

Result<void> EventLoop::open() {
    epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd_ < 0) return error_from_shortage(errno, "create an epoll descriptor");
    shared_->wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (shared_->wake_fd < 0) return error_from_shortage(errno, "create an eventfd");
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = nullptr;  // the only descriptor without a handler
    if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, shared_->wake_fd, &event) == 0) return {};
    return no_watch(errno, shared_->wake_fd);
}

EventLoop::~EventLoop() {
    stop();
    if (thread_.joinable()) thread_.join();
    ::close(shared_->wake_fd);
    ::close(epoll_fd_);
}

Result<void> EventLoop::start_thread() {
    if (!opened_) return opened_.error();
    {
        // Posted work must wait for the thread from now on, not run on the caller's.
        const std::lock_guard lock(shared_->mutex);
        MUSTER_CHECK(!shared_->running);
        shared_->running = true;
    }
    auto started = muster::start_thread("rendezvous", [this] { run(); });
    if (started) {
        thread_ = std::move(*started);
        return {};
    }
    const std::lock_guard lock(shared_->mutex);
    shared_->running = false;
    return started.error();
}

void EventLoop::run() {
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->running = true;
        shared_->runner = std::this_thread::get_id();
    }
    next_deadline_ = Instant{};  // the tickers have not been asked yet
    for (bool stopping = false; !stopping;) {
        turn();
        const std::lock_guard lock(shared_->mutex);
        // Whoever waits in `invoke` is served first: from the moment `running` is false, others run their own work.
        stopping = shared_->stopping && shared_->posted.empty();
        if (!stopping) continue;
        shared_->running = false;
        shared_->runner = {};
    }
}

void EventLoop::stop() {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->wake();
}

void EventLoop::post(std::function<void()> work) {
    const std::lock_guard lock(shared_->mutex);
    shared_->posted.push_back(std::move(work));
    if (shared_->posted.size() == 1) shared_->wake();
}

void EventLoop::invoke(const std::function<void()>& work) {
    std::unique_lock lock(shared_->mutex);
    if (!shared_->running || shared_->runner == std::this_thread::get_id()) {
        lock.unlock();
        work();
        return;
    }
    std::condition_variable finished;
    bool done = false;
    shared_->posted.emplace_back([&] {
        work();
        const std::lock_guard inner(shared_->mutex);
        done = true;
        finished.notify_all();
    });
    shared_->wake();
    finished.wait(lock, [&] { return done; });
}

Result<void> EventLoop::control(int operation, int fd, std::uint32_t events, Handler& handler) {
    if (!opened_) return opened_.error();
    epoll_event event{};
    event.events = events;
    event.data.ptr = &handler;
    if (::epoll_ctl(epoll_fd_, operation, fd, &event) == 0) return {};
    return no_watch(errno, fd);
}

Result<void> EventLoop::add(int fd, std::uint32_t events, Handler& handler) {
    return control(EPOLL_CTL_ADD, fd, events, handler);
}

Result<void> EventLoop::change(int fd, std::uint32_t events, Handler& handler) {
    return control(EPOLL_CTL_MOD, fd, events, handler);
}

void EventLoop::remove(int fd, Handler& handler) {
    handler.retired_ = true;
    MUSTER_CHECK(::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr) == 0, errno, fd);
}

void EventLoop::retire(std::unique_ptr<Handler> handler) {
    handler->retired_ = true;
    retired_.push_back(std::move(handler));
}

void EventLoop::add(Ticker& ticker) {
    tickers_.push_back(&ticker);
    next_deadline_ = Instant{};
}

void EventLoop::remove(Ticker& ticker) {
    std::erase(tickers_, &ticker);
}

void EventLoop::turn() {
    std::array<epoll_event, events_per_turn> events;
    const int count =
        ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), timeout_ms(next_deadline_));
    MUSTER_CHECK(count >= 0 || errno == EINTR, errno);
    const Instant now = std::chrono::steady_clock::now();
    bool posted = false;
    for (int i = 0; i < count; ++i) {
        const auto& event = events[static_cast<std::size_t>(i)];
        auto* handler = static_cast<Handler*>(event.data.ptr);
        if (handler == nullptr)
            posted = true;
        else if (!handler->retired_)
            handler->ready(event.events, now);
    }
    // Posted work may destroy handlers, so it runs when none of the fetched events is left to be handed out.
    if (posted) run_posted();
    next_deadline_ = run_tickers(now);
    retired_.clear();
    turn_times_.add(std::chrono::steady_clock::now() - now);
}

void EventLoop::run_posted() {
    std::vector<std::function<void()>> work;
    {
        const std::lock_guard lock(shared_->mutex);
        std::uint64_t counter = 0;
        [[maybe_unused]] const auto bytes = ::read(shared_->wake_fd, &counter, sizeof counter);
        work.swap(shared_->posted);
    }
    for (auto& item : work) item();
}

Instant EventLoop::run_tickers(Instant now) {
    Instant next = no_deadline;
    const auto retired_count = retired_.size();
    // By index: a ticker's turn may remove itself or add another.
    for (std::size_t i = 0; i < tickers_.size(); ++i) next = std::min(next, tickers_[i]->turn(now));
    // The end of a connection may give a deadline to a ticker that was asked before.
    return retired_.size() > retired_count ? now : next;
}

}  // namespace muster::rendezvous
