// The daemon as a service: an orderly stop on SIGTERM and SIGINT, and systemd's notification protocol.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/event_loop.h"

namespace muster::rendezvous {

/// Stops `loop` on SIGTERM or SIGINT. Construct it before any thread starts: it blocks both signals permanently.
/// `on_hang_up` is called on the loop on SIGHUP, which is blocked, too; empty: SIGHUP keeps its action.
class StopOnSignal final : public EventLoop::Handler {
  public:
    explicit StopOnSignal(EventLoop& loop, std::function<void()> on_hang_up = {});
    ~StopOnSignal() override;

    void ready(std::uint32_t events, Instant now) override;
    /// The signal that arrived; 0 before.
    [[nodiscard]] int signal() const { return signal_; }
    /// After the loop: a thread ends the process at the next SIGTERM or SIGINT, because the orderly end may wait for a
    /// disk that does not answer. Those within `one_request` count as the first: some senders send it twice.
    static void end_at_next(Duration one_request);

  private:
    EventLoop& loop_;
    const std::function<void()> on_hang_up_;
    int fd_ = -1;
    int signal_ = 0;
};

/// The environment that systemd gives to the first process of a service.
struct ServiceEnvironment {
    std::string notify_socket;             ///< $NOTIFY_SOCKET; empty: none
    Duration watchdog = Duration::zero();  ///< $WATCHDOG_USEC, if set for this process; zero: none
    std::vector<std::string> listens;      ///< $LISTEN_FDNAMES of the sockets from descriptor 3 on, in order
    std::string state_directory;           ///< $STATE_DIRECTORY; empty: none
};
inline constexpr int first_given_socket = 3;

/// Reads the variables through `value_of`. Ignores those of another process (LISTEN_PID, WATCHDOG_PID).
/// invalid_argument: a malformed number, or more than 64 sockets.
Result<ServiceEnvironment> service_environment(const std::function<const char*(const char*)>& value_of, int own_pid);

/// Reports readiness to the service manager as soon as the loop runs, feeds its watchdog at twice the requested rate,
/// and updates the status line at most once a second. Everything is sent from a turn of the loop, so a stuck loop does
/// not feed the watchdog. Where the manager's queue is full, the loop does not wait; it retries after a second.
class ServiceReport final : public EventLoop::Ticker {
  public:
    /// `status` returns one line for `systemctl status`; called on the loop. Must not be destroyed while the loop runs.
    ServiceReport(EventLoop& loop, ServiceEnvironment service, std::function<std::string()> status);
    /// Sends STOPPING=1.
    ~ServiceReport() override;
    Instant turn(Instant now) override;

  private:
    EventLoop& loop_;
    const ServiceEnvironment service_;
    const std::function<std::string()> status_;
    bool notify(std::string_view lines, Duration patience);

    std::string sent_;
    Instant feed_at_{};
    Instant check_at_{};
    bool ready_ = false;
    bool failed_ = false;  ///< True after a failed notification.
};

/// Sends one datagram of systemd's protocol to $NOTIFY_SOCKET, e.g. "READY=1". Does nothing when `socket_path` is
/// empty. Waits `patience` while the manager's queue is full. Report the error to the user: systemd kills a service
/// that does not notify.
Result<void> notify_service_manager(std::string_view socket_path, std::string_view lines, Duration patience);

}  // namespace muster::rendezvous
