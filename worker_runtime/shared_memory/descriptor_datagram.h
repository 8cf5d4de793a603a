// Datagrams of rendezvous/base/sockets/datagram.h, waited for until a deadline.
#pragma once

#include <poll.h>

#include <span>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/datagram.h"
#include "worker_runtime/transport/meeting_wait.h"

namespace muster::runtime {

/// Returns when `fd` is ready for `events` (poll's), or false at the deadline.
Result<bool> wait_ready(int fd, short events, const MeetingWait& wait);
/// The same for several: true when one is ready; their `revents` show which.
Result<bool> wait_any_ready(std::span<pollfd> polled, const MeetingWait& wait);

Result<void> send_datagram_before(const MeetingWait& wait, int fd, std::string_view bytes,
                                  std::span<const int> descriptors = {});

/// peer_closed when the other end has gone.
Result<Datagram> receive_datagram_before(const MeetingWait& wait, int fd);

}  // namespace muster::runtime
