#include "rendezvous/base/sockets/datagram.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "rendezvous/base/check.h"

namespace muster {

std::optional<Datagram> receive_datagram(int socket, std::size_t bytes_max, std::size_t descriptors_max) {
    MUSTER_CHECK(descriptors_max <= datagram_descriptors_max, descriptors_max);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * datagram_descriptors_max)];
    Datagram datagram;
    datagram.bytes.resize(bytes_max);
    iovec part{datagram.bytes.data(), datagram.bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors_max);
    ssize_t size = 0;
    // An end that closes with unread datagrams makes the kernel report a reset, once, before what that end has sent.
    do {
        size = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (size < 0 && (errno == EINTR || errno == ECONNRESET));
    if (size < 0) return std::nullopt;
    datagram.bytes.resize(static_cast<std::size_t>(size));
    datagram.cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    for (auto* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
        const auto count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int number = -1;
            ::memcpy(&number, CMSG_DATA(item) + i * sizeof(int), sizeof number);
            datagram.descriptors.emplace_back(number);
        }
    }
    // CMSG_SPACE rounds up, so that one more may have come through than was asked for.
    if (datagram.descriptors.size() > descriptors_max) datagram.cut = true;
    return datagram;
}

int send_datagram(int socket, std::string_view bytes, std::span<const int> descriptors) {
    MUSTER_CHECK(descriptors.size() <= datagram_descriptors_max, descriptors.size());
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * datagram_descriptors_max)] = {};
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!descriptors.empty()) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        auto* item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        ::memcpy(CMSG_DATA(item), descriptors.data(), descriptors.size_bytes());
    }
    for (;;) {
        if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
        if (errno != EINTR) return errno;
    }
}

}  // namespace muster
