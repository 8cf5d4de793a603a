#include "worker_runtime/shared_memory/descriptor_datagram.h"

#include <errno.h>

#include <chrono>
#include <thread>
#include <utility>

#include "worker_runtime/transport/poll_timeout.h"

namespace muster::runtime {

namespace {

constexpr Duration too_many_pause = std::chrono::milliseconds(5);

}  // namespace

Result<bool> wait_ready(int fd, short events, const MeetingWait& wait) {
    pollfd polled{fd, events, 0};
    return wait_any_ready({&polled, 1}, wait);
}

Result<bool> wait_any_ready(std::span<pollfd> polled, const MeetingWait& wait) {
    for (;;) {
        const auto now = std::chrono::steady_clock::now();
        const int count = ::poll(polled.data(), polled.size(), poll_timeout_ms(wait.next_check(now), now));
        if (count > 0) return true;
        if (auto stands = wait.check_alive(); !stands) return stands.error();
        if (now >= wait.deadline || (count < 0 && errno != EINTR)) return false;
    }
}

Result<void> send_datagram_before(const MeetingWait& wait, int fd, std::string_view bytes,
                                  std::span<const int> descriptors) {
    for (;;) {
        const int failed = send_datagram(fd, bytes, descriptors);
        if (failed == 0) return {};
        if (failed != EAGAIN && failed != ETOOMANYREFS) return error_from_errno(failed, "hand over shared memory");
        // Too many descriptors of this user are under way, maybe of other processes: the socket is writable meanwhile.
        if (failed == ETOOMANYREFS) std::this_thread::sleep_for(too_many_pause);
        MUSTER_TRY(wait.check_alive());
        if (!MUSTER_TRY(wait_ready(fd, POLLOUT, wait)) || std::chrono::steady_clock::now() >= wait.deadline)
            return Error{Errc::timed_out, "timed out while sending"};
    }
}

Result<Datagram> receive_datagram_before(const MeetingWait& wait, int fd) {
    for (;;) {
        if (!MUSTER_TRY(wait_ready(fd, POLLIN, wait))) return Error{Errc::timed_out, "timed out while receiving"};
        auto datagram = receive_datagram(fd, 2048, datagram_descriptors_max);
        if (!datagram && errno == EAGAIN) continue;
        if (!datagram) return error_from_errno(errno, "receive shared memory");
        if (datagram->bytes.empty()) return Error{Errc::peer_closed, "it has gone"};
        if (datagram->cut)
            return Error{Errc::limit_exceeded,
                         "file descriptors were lost: too many open files? Raise the limit (ulimit -n)"};
        return std::move(*datagram);
    }
}

}  // namespace muster::runtime
