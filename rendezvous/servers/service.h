// What a daemon owes to those who start and stop it: an orderly end on SIGTERM and SIGINT, and a word to the service
// manager when it is ready.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/event_loop.h"

namespace muster::rendezvous {

/// Stops `loop` on SIGTERM or SIGINT. Make it before any thread is started: it blocks both signals for good.
class StopOnSignal final : public EventLoop::Handler {
  public:
    explicit StopOnSignal(EventLoop& loop);
    ~StopOnSignal() override;

    void ready(std::uint32_t events, Instant now) override;
    /// The signal that came; 0 before.
    [[nodiscard]] int signal() const { return signal_; }

  private:
    EventLoop& loop_;
    int fd_ = -1;
    int signal_ = 0;
};

/// What systemd hands to a service's first process through its environment.
struct ServiceEnvironment {
    std::string notify_socket;             ///< $NOTIFY_SOCKET; empty: nobody wants to be told anything
    Duration watchdog = Duration::zero();  ///< $WATCHDOG_USEC, if it is for us; zero: none
    std::vector<std::string> listens;      ///< $LISTEN_FDNAMES of the sockets from descriptor 3 on, in order
    std::string state_directory;           ///< $STATE_DIRECTORY; empty: none
};
inline constexpr int first_given_socket = 3;

/// Asks `value_of` for the variables. Those meant for another process (LISTEN_PID, WATCHDOG_PID) count as not there.
/// invalid_argument: a number that is none; more sockets than 64.
Result<ServiceEnvironment> service_environment(const std::function<const char*(const char*)>& value_of, int own_pid);

/// The loop's own word that it turns: tells the service manager that this process is ready as soon as the loop runs,
/// feeds its watchdog twice as often as it asks for, and changes the status line, at most once a second. From a turn of
/// the loop and nowhere else, so that a loop that is stuck, or stopped, is not fed. What a full queue does not take is
/// said again a second later, and the loop does not wait for it.
class ServiceReport final : public EventLoop::Ticker {
  public:
    /// `status`: one line for `systemctl status`, asked for on the loop. Must not be destroyed while the loop runs.
    ServiceReport(EventLoop& loop, ServiceEnvironment service, std::function<std::string()> status);
    /// Says STOPPING=1.
    ~ServiceReport() override;
    Instant turn(Instant now) override;

  private:
    EventLoop& loop_;
    const ServiceEnvironment service_;
    const std::function<std::string()> status_;
    bool tell(std::string_view words, Duration patience);

    std::string said_;
    Instant feed_at_{};
    Instant look_at_{};
    bool ready_ = false;
    bool complained_ = false;  ///< and not been heard since
};

/// systemd's protocol: one datagram to $NOTIFY_SOCKET, e.g. "READY=1". Does nothing where `socket_path` is empty. Waits
/// `patience` where its queue is full. The error is worth a line, because a service manager that hears nothing may end
/// us.
Result<void> notify_service_manager(std::string_view socket_path, std::string_view words, Duration patience);

/// Lets this process open as many files as its hard limit allows, and returns that number. For daemons alone: what a
/// launcher raises, its workers inherit.
std::size_t raise_open_files_limit();

}  // namespace muster::rendezvous
