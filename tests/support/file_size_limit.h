// A write that fails in its middle, as on a full disk, without a disk of the test's own.
#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace muster::test {

/// While it lives, files of this process may not grow beyond this: a write is short, and the next one fails with EFBIG.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit now{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &now);
        was_ = ::signal(SIGXFSZ, SIG_IGN);
    }
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        ::signal(SIGXFSZ, was_);
    }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  private:
    rlimit before_{};
    sighandler_t was_ = nullptr;
};

}  // namespace muster::test
