#include "worker_runtime/cpu/descriptor_datagram.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <utility>

namespace muster::runtime {

bool wait_ready(int fd, short events, Instant deadline) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        pollfd ready{fd, events, 0};
        const int count = ::poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
        if (count > 0) return true;
        if (left.count() <= 0 || (count < 0 && errno != EINTR)) return false;
    }
}

Result<void> send_datagram_before(Instant deadline, int fd, std::string_view bytes, std::span<const int> descriptors) {
    for (;;) {
        const int failed = send_datagram(fd, bytes, descriptors);
        if (failed == 0) return {};
        if (failed != EAGAIN && failed != ETOOMANYREFS) return error_from_errno(failed, "hand over shared memory");
        if (!wait_ready(fd, POLLOUT, deadline)) return Error{Errc::timed_out, "it took nothing by the deadline"};
    }
}

Result<Datagram> receive_datagram_before(Instant deadline, int fd) {
    for (bool was_reset = false;;) {
        if (!wait_ready(fd, POLLIN, deadline)) return Error{Errc::timed_out, "nothing came by the deadline"};
        auto datagram = receive_datagram(fd, 2048, datagram_descriptors_max);
        if (!datagram && errno == EAGAIN) continue;
        // The other end left something of ours unread. What it said last still lies behind that.
        if (!datagram && errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
        if (!datagram) return error_from_errno(errno, "receive shared memory");
        if (datagram->bytes.empty()) return Error{Errc::peer_closed, "it has gone"};
        if (datagram->cut) return Error{Errc::limit_exceeded, "descriptors were lost: too many open files?"};
        return std::move(*datagram);
    }
}

}  // namespace muster::runtime
