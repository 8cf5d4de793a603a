// The loop under every rendezvous socket: one epoll, one thread.
//
// Why not Asio here, as elsewhere: a request of PyTorch's store costs a few microseconds, most of them in the kernel,
// and our server has to spend less of them than libuv's. libuv pays epoll_wait + read + write for each. Asio adds to
// these a speculative read that finds nothing (async_read_some) or an epoll_ctl (async_wait), and a nested epoll adds a
// second epoll_wait. Here a request costs epoll_wait + recv + send, and under load one epoll_wait serves up to 256 of
// them. Streams are watched edge-triggered (connection.cpp), and each is read once a turn, so none can starve the
// others.
//
// It runs either on a thread of its own (`start_thread`, as in `muster`, where the store must answer while the agent is
// busy) or on the caller's (`run`, as in `musterd`). All that lives on it is touched by that thread alone; other
// threads use `post`, `invoke` and `stop`. Start the thread after the guardian has been forked: a child of fork has one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/time_histogram.h"

namespace muster::rendezvous {

class EventLoop {
  public:
    /// A descriptor's owner. `ready` gets epoll's bits; it may retire itself and others.
    class Handler {
      public:
        virtual ~Handler() = default;
        virtual void ready(std::uint32_t events, Instant now) = 0;

      private:
        friend class EventLoop;
        bool retired_ = false;
    };
    /// Something with deadlines. `turn` is called after every batch of events and says when it wants the next call at
    /// the latest; it must be cheap when nothing is due.
    class Ticker {
      public:
        virtual ~Ticker() = default;
        virtual Instant turn(Instant now) = 0;
    };

    EventLoop();
    /// Stops and joins the thread, if there is one.
    ~EventLoop();
    EventLoop& operator=(EventLoop&&) = delete;

    /// An error when the system had no descriptor or watch for this loop; then `add` and `start_thread` return it too,
    /// and `run` must not be called.
    [[nodiscard]] const Result<void>& opened() const { return opened_; }
    /// Serves until `stop`. At most once, and not together with `start_thread`.
    void run();
    /// An error when the system has no thread to give, or that of `opened`; then nothing runs.
    Result<void> start_thread();
    /// From any thread. The loop ends after the current turn.
    void stop();

    /// From any thread: `work` runs on the loop's thread, in order, soon. Dropped if the loop never runs again.
    void post(std::function<void()> work);
    /// From any thread: runs `work` on the loop's thread and waits for it; at once if this is that thread or the loop
    /// is not running.
    void invoke(const std::function<void()>& work);
    /// The same, and returns what `work` returns.
    template <class Work>
    auto ask(const Work& work) {
        decltype(work()) answer{};
        invoke([&] { answer = work(); });
        return answer;
    }

    // ---- on the loop's thread, or while it does not run ----
    /// `handler` must live until `retire` or `remove`. limit_exceeded when the kernel has no room for one more watch,
    /// which is the user's limit or the host's memory; the descriptor is then not watched (by `add`), or as before.
    [[nodiscard]] Result<void> add(int fd, std::uint32_t events, Handler& handler);
    [[nodiscard]] Result<void> change(int fd, std::uint32_t events, Handler& handler);
    /// No more calls, not even for events that were already fetched. The caller may destroy `handler` when the turn
    /// is over, not before: `retire` does that.
    void remove(int fd, Handler& handler);
    /// Destroys `handler` at the end of this turn.
    void retire(std::unique_ptr<Handler> handler);
    void add(Ticker& ticker);
    void remove(Ticker& ticker);
    /// How long the turns took, without the time that the loop waited for events.
    [[nodiscard]] const TimeHistogram& turn_times() const { return turn_times_; }

  private:
    struct Shared;  // what other threads touch, under a mutex

    Result<void> open();
    Result<void> control(int operation, int fd, std::uint32_t events, Handler& handler);
    void turn();
    void run_posted();
    Instant run_tickers(Instant now);

    int epoll_fd_ = -1;
    std::unique_ptr<Shared> shared_;
    Result<void> opened_;  // after what open() sets
    std::vector<Ticker*> tickers_;
    std::vector<std::unique_ptr<Handler>> retired_;
    Instant next_deadline_ = no_deadline;
    TimeHistogram turn_times_;
    std::thread thread_;
};

}  // namespace muster::rendezvous
