#include "launcher/node/service_unit.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <optional>

#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/servers/service.h"

namespace muster::launcher {

namespace {

/// An abstract socket: it disappears with its process, and its listener's pid is visible to others.
sockaddr_un claim_address(const std::string& job, socklen_t& size) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    auto name = cat("muster-unit/", ::geteuid(), "/", job);
    constexpr auto room = sizeof address.sun_path - 1;
    if (name.size() > room) name = cat("muster-unit#", std::hash<std::string>{}(name));
    name.copy(address.sun_path + 1, room);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

FileDescriptor unix_socket() {
    return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Nothing if no process listens there.
std::optional<ucred> find_holder(const sockaddr_un& address, socklen_t size) {
    const auto asking = unix_socket();
    ucred holder{};
    socklen_t length = sizeof holder;
    if (::connect(asking.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::getsockopt(asking.get(), SOL_SOCKET, SO_PEERCRED, &holder, &length) != 0)
        return std::nullopt;
    return holder;
}

/// "process 4242 of muster-agent@train.service".
std::string describe_holder(const ucred& holder) {
    const auto groups = read_file(cat("/proc/", holder.pid, "/cgroup"));
    for (const auto line : split(groups, '\n'))
        for (const auto part : split(line, '/'))
            if (part.ends_with(".service")) return cat("process ", holder.pid, " of ", part);
    return cat("process ", holder.pid);
}

}  // namespace

ServiceUnit ServiceUnit::take(Environment& environment, int own_pid, int parent_pid) {
    ServiceUnit unit;
    const auto executed = lookup(environment, "SYSTEMD_EXEC_PID");
    const auto invocation = lookup(environment, "INVOCATION_ID");
    unit.is_main_ = executed ? *executed == std::to_string(own_pid) : invocation && parent_pid == 1;
    if (!unit.is_main_) return unit;
    unit.notify_socket_ = value_or_empty(environment, "NOTIFY_SOCKET");
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS",
                             "LISTEN_FDNAMES", "SYSTEMD_EXEC_PID"})
        environment.erase(name);
    return unit;
}

Result<void> ServiceUnit::check_user(uid_t user, bool allow_root) const {
    if (!is_main_ || user != 0 || allow_root) return {};
    return Error{
        Errc::permission_denied,
        "this unit would run workers as root; set User= in a drop-in of the unit (systemctl edit UNIT), or write "
        "allow-root = yes into the job's file (--allow-root) if they need root"};
}

Result<void> ServiceUnit::claim(const std::string& job) {
    if (!is_main_) return {};
    socklen_t size = 0;
    const auto address = claim_address(job, size);
    auto socket = unix_socket();
    const bool bound = socket.valid() && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
    if (!bound && errno == EADDRINUSE) {
        const auto holder = find_holder(address, size);
        if (holder && holder->uid == ::geteuid())
            return Error{
                Errc::already_exists,
                cat("job '", job, "' runs on this host already, in ", describe_holder(*holder),
                    "; only one unit per job and host is allowed: stop one of them, or give them different rdzv-id")};
        // Every user can bind the name, so it proves nothing.
        log(LogLevel::warning, "the name by which units of job '", job, "' exclude each other is held by ",
            holder ? cat(describe_holder(*holder), ", user ", holder->uid) : std::string("an unknown process"),
            ", not by a unit of this user; the job starts all the same. Look at that process: it can be an attack");
    }
    // Other errors of bind() do not stop the job. Nobody accepts: each unit that asks stays in the queue.
    if (bound && ::listen(socket.get(), SOMAXCONN) == 0) claim_ = std::move(socket);
    return {};
}

void ServiceUnit::status(std::string_view line) const {
    constexpr std::string_view ours = "muster: ";
    if (line.starts_with(ours)) line.remove_prefix(ours.size());
    say(cat("STATUS=", line.substr(0, line.find('\n'))));
}

void ServiceUnit::stopping(Duration at_most) const {
    say(cat("STOPPING=1\nEXTEND_TIMEOUT_USEC=",
            std::chrono::duration_cast<std::chrono::microseconds>(at_most).count()));
}

void ServiceUnit::say(std::string_view words) const {
    if (!is_main_) return;
    if (const auto told = rendezvous::notify_service_manager(notify_socket_, words, 1s); !told)
        log(LogLevel::warning, told.error().context);
}

}  // namespace muster::launcher
