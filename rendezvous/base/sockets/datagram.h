// Whole messages with descriptors (SCM_RIGHTS) over a Unix seqpacket socket. Neither call ever blocks.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/file_descriptor.h"

namespace muster {

/// The kernel's own limit (SCM_MAX_FD).
inline constexpr std::size_t datagram_descriptors_max = 253;

struct Datagram {
    std::string bytes;                        ///< Empty: the other end has closed. We never send an empty one.
    std::vector<FileDescriptor> descriptors;  ///< Close-on-exec.
    bool cut = false;                         ///< True if the datagram or its descriptors were truncated.
};

/// The next datagram, or nothing and errno: EAGAIN when none is there yet, anything else when the socket is broken. A
/// reset of the other end, which has left something unread, is passed over: its last words lie behind it.
std::optional<Datagram> receive_datagram(int socket, std::size_t bytes_max, std::size_t descriptors_max);

/// 0, or the errno: EAGAIN and ETOOMANYREFS (too many descriptors under way) when it may be tried again, EPIPE or
/// ECONNRESET when the other end has gone. The descriptors stay the caller's. No SIGPIPE.
int send_datagram(int socket, std::string_view bytes, std::span<const int> descriptors = {});

}  // namespace muster
