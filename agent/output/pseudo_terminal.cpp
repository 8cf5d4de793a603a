#include "agent/output/pseudo_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

namespace muster::agent {

Result<PseudoTerminal> open_pseudo_terminal(int like_fd) {
    PseudoTerminal made;
    made.ours = FileDescriptor(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    char name[128];
    const bool ready = made.ours.valid() && ::grantpt(made.ours.get()) == 0 && ::unlockpt(made.ours.get()) == 0 &&
                       ::ptsname_r(made.ours.get(), name, sizeof name) == 0;
    if (ready) made.workers = FileDescriptor(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!made.workers.valid()) return error_from_errno(errno, "open a pseudo-terminal for a worker");
    termios modes{};
    if (::tcgetattr(made.workers.get(), &modes) == 0) {
        modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
        modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG);
        ::tcsetattr(made.workers.get(), TCSANOW, &modes);
    }
    winsize size{};
    if (::ioctl(like_fd, TIOCGWINSZ, &size) == 0) ::ioctl(made.workers.get(), TIOCSWINSZ, &size);
    return made;
}

}  // namespace muster::agent
