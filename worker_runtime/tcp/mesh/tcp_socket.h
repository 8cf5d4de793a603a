// Creates the transport's sockets: non-blocking, close-on-exec, without Nagle's delay.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"

namespace muster::runtime {

/// Listens at `address` (numeric), port chosen by the kernel.
Result<FileDescriptor> listen_at(const std::string& address, int backlog);

/// Begins to connect; the socket becomes writable when that is over, and connect_failure() says how it went. `failure`
/// is an errno, 0 when it has begun.
FileDescriptor begin_connect(const SocketAddress& to, int& failure);
/// An errno; 0 when the connection stands.
int connect_failure(const FileDescriptor& socket);

/// The next waiting connection; invalid when there is none.
FileDescriptor accept_from(const FileDescriptor& listener);

/// For a connection that carries data.
void tune_data_socket(const FileDescriptor& socket);
bool is_same_host(const FileDescriptor& socket);
/// What the kernel may hold of data that the peer has not taken.
void set_send_buffer(int socket, int size_bytes);
/// For a connection that is silent as long as all is well: a host that has gone shows within 15 s.
void tune_control_socket(const FileDescriptor& socket);

}  // namespace muster::runtime
