// A muster that is the main process of a systemd unit: notifications to systemd, and one unit per job and host.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

class ServiceUnit {
  public:
    /// Not a unit: all functions do nothing.
    ServiceUnit() = default;
    /// Removes systemd's variables for the main process from the environment, because workers must not notify for the
    /// unit. Only if systemd started this process ($SYSTEMD_EXEC_PID; before systemd 248: its parent is process 1).
    static ServiceUnit take(Environment& environment, int own_pid, int parent_pid);

    /// Fails with permission_denied if this unit would run workers as root without `allow_root`.
    Result<void> check_user(uid_t user, bool allow_root) const;

    /// Claims the job for this unit on this host and user, until this process exits. Two units of one job would compete
    /// for the same GPUs. Fails with already_exists, which names the owner's process and unit.
    Result<void> claim(const std::string& job);

    void ready() const { say("READY=1"); }
    /// One line for `systemctl status`.
    void status(std::string_view line) const;
    /// Asks systemd to wait `at_most` for the end, whatever the unit's TimeoutStopSec is.
    void stopping(Duration at_most) const;

  private:
    void say(std::string_view words) const;

    bool is_main_ = false;
    std::string notify_socket_;
    FileDescriptor claim_;
};

}  // namespace muster::launcher
