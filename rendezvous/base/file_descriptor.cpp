#include "rendezvous/base/file_descriptor.h"

#include <unistd.h>

namespace muster {

void FileDescriptor::reset() {
    // Not retried on EINTR: Linux has closed it then, and the number may already be another thread's.
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

}  // namespace muster
