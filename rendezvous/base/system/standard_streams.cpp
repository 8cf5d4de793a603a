#include "rendezvous/base/system/standard_streams.h"

#include <fcntl.h>

namespace muster {

bool open_missing_standard_streams() {
    for (int fd = 0; fd <= 2; ++fd) {
        // The lowest free number is taken, and those below `fd` are in use by now.
        if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) return false;
    }
    return true;
}

}  // namespace muster
