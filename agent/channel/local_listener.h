// Listens at an abstract Unix address for seqpacket connections from this host.
#pragma once

#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

/// Anybody on this host may connect, so the queue is as long as the system allows: others do not fill it at once.
/// `address` without the '@' that stands for the zero byte in front. Errors are the system's; `whom` completes "listen
/// for ... at @address".
Result<FileDescriptor> listen_locally(std::string_view address, std::string_view whom);

/// True if the other end has closed the connection. What it sent before can still be read.
bool has_hung_up(int socket);

}  // namespace muster::agent
