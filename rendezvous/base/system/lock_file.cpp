#include "rendezvous/base/system/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

namespace muster {

FileDescriptor open_locked(const std::string& path, int flags, mode_t mode) {
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    // NFS locks only what is open for writing.
    FileDescriptor file(::open(path.c_str(), O_RDWR | flags, mode));
    // Other file systems lock what this user may only read, too.
    if (!file.valid() && (errno == EACCES || errno == EROFS))
        file = FileDescriptor(::open(path.c_str(), O_RDONLY | flags, mode));
    if (!file.valid() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return {};
    return file;
}

}  // namespace muster
