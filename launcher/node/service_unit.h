// What a muster that is a systemd unit's main process owes to systemd, and to other units of its job.
#pragma once

#include <string>
#include <string_view>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

class ServiceUnit {
  public:
    /// Not a unit: nothing below does anything.
    ServiceUnit() = default;
    /// Takes what systemd said to this process alone out of the environment, where this is the process that systemd
    /// started ($SYSTEMD_EXEC_PID; before systemd 248: its parent is process 1): workers must not speak for the unit.
    static ServiceUnit take(Environment& environment, int own_pid, int parent_pid);

    /// One unit a job, user and host: their workers would fight for the same GPUs, and nobody starts two on purpose.
    /// Held until this process ends, however that is. already_exists names the process and the unit that have it.
    Result<void> claim(const std::string& job);

    void ready() const { say("READY=1"); }
    /// One line for `systemctl status`.
    void status(std::string_view line) const;
    /// The end takes at most this long: systemd waits as long, whatever the unit's TimeoutStopSec is.
    void stopping(Duration at_most) const;

  private:
    void say(std::string_view words) const;

    bool is_main_ = false;
    std::string notify_socket_;
    FileDescriptor claim_;
};

}  // namespace muster::launcher
