// Datagrams with descriptors beside their bytes, over a Unix seqpacket socket.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

inline constexpr std::size_t datagram_bytes_max = 2048;
/// SCM_MAX_FD of the kernel: descriptors in one message.
inline constexpr int datagram_descriptors_max = 253;

struct Datagram {
    std::string bytes;
    std::vector<FileDescriptor> descriptors;
};

/// Returns when `fd` is ready for `events` (poll's), or false at the deadline.
bool wait_ready(int fd, short events, Instant deadline);

/// The descriptors stay the caller's. `bytes` must not be empty.
Result<void> send_datagram(int fd, const std::string& bytes, const std::vector<int>& descriptors, Instant deadline);

/// peer_closed when the other end has gone.
Result<Datagram> receive_datagram(int fd, Instant deadline);

}  // namespace muster::runtime
