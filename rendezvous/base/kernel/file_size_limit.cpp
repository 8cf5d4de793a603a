#include "rendezvous/base/kernel/file_size_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "rendezvous/base/text/text.h"

namespace muster {

void survive_file_size_limit() {
    std::signal(SIGXFSZ, SIG_IGN);
}

std::string errno_text(int number) {
    auto text = std::generic_category().message(number);
    rlimit limit{};
    if (number != EFBIG || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return text;
    return cat(text, ": this process may write files of at most ", limit.rlim_cur,
               " bytes; raise ulimit -f (RLIMIT_FSIZE)");
}

}  // namespace muster
