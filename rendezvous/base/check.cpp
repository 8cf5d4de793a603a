#include "rendezvous/base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "rendezvous/base/log.h"

namespace muster::detail {

void check_failed(const char* condition, const char* file, int line, const std::string& values) {
    flush_log(1s);  // what led here is on its way to the same stream
    std::fprintf(stderr, "%smuster: bug at %s:%d: (%s) does not hold [%s]\n", line_time(STDERR_FILENO).c_str(), file,
                 line, condition, values.c_str());
    std::fflush(stderr);
    std::abort();
}

}  // namespace muster::detail
