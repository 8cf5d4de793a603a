#include "worker_runtime/cpu/descriptor_datagram.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

namespace muster::runtime {

bool wait_ready(int fd, short events, Instant deadline) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd ready{fd, events, 0};
        const int count = ::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
        if (count > 0) return true;
        if (count < 0 && errno != EINTR) return false;
    }
}

Result<void> send_datagram(int fd, const std::string& bytes, const std::vector<int>& descriptors, Instant deadline) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * descriptors.size()));
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
        ::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(int) * descriptors.size());
    }
    for (;;) {
        if (::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
        if (errno == EAGAIN && wait_ready(fd, POLLOUT, deadline)) continue;
        if (errno == EINTR) continue;
        return errno == EAGAIN ? Error{Errc::timed_out, "no room for a datagram"}
                               : error_from_errno(errno, "hand over shared memory");
    }
}

Result<Datagram> receive_datagram(int fd, Instant deadline) {
    Datagram out;
    out.bytes.resize(datagram_bytes_max);
    std::vector<char> control(CMSG_SPACE(sizeof(int) * datagram_descriptors_max));
    for (;;) {
        if (!wait_ready(fd, POLLIN, deadline)) return Error{Errc::timed_out, "nothing came"};
        iovec part{out.bytes.data(), out.bytes.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const auto got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got < 0) return error_from_errno(errno, "receive shared memory");
        for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
            if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
            const auto count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (std::size_t i = 0; i < count; ++i) {
                int number = -1;
                ::memcpy(&number, CMSG_DATA(header) + i * sizeof(int), sizeof number);
                out.descriptors.emplace_back(number);
            }
        }
        if (got == 0) return Error{Errc::peer_closed, "it has gone"};
        out.bytes.resize(static_cast<std::size_t>(got));
        return out;
    }
}

}  // namespace muster::runtime
