// What a daemon owes to those who start and stop it: an orderly end on SIGTERM and SIGINT, and a word to the service
// manager when it is ready.
#pragma once

#include <string_view>

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

/// systemd's protocol: one datagram to $NOTIFY_SOCKET, e.g. "READY=1". Does nothing where `socket_path` is empty; a
/// failure is logged, because a service manager that hears nothing will end us.
void notify_service_manager(std::string_view socket_path, std::string_view words);

/// Lets this process open as many files as its hard limit allows, and returns that number. For daemons alone: what a
/// launcher raises, its workers inherit.
std::size_t raise_open_files_limit();

}  // namespace muster::rendezvous
