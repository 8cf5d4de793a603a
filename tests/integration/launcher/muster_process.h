// A muster started by a test, as a shell would start it: its streams are read, its end is awaited with a deadline.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace muster::test {

struct MusterOptions {
    std::map<std::string, std::string> environment = {};  ///< beside PATH, and a HOME and TMPDIR of its own
    std::string directory = {};                           ///< to start in; empty: the test's own
    bool close_streams = false;                           ///< start with descriptors 0, 1 and 2 closed
    bool close_stdout_reader = false;                     ///< stdout is a pipe that nobody reads
    unsigned open_files_max = 0;                          ///< limit of open files, soft and hard; 0: the test's own
    int ignored_signal = 0;                               ///< that it starts to ignore; 0: none
};

class MusterProcess {
  public:
    explicit MusterProcess(const std::vector<std::string>& words, const MusterOptions& options = {});
    /// Kills it, if it still runs.
    ~MusterProcess();
    MusterProcess(const MusterProcess&) = delete;
    MusterProcess& operator=(const MusterProcess&) = delete;

    /// Its exit code, 128+n if a signal ended it, or -1 if it has not ended within `limit` (then it is killed).
    int wait(std::chrono::milliseconds limit = std::chrono::seconds(25));
    /// Until stdout or stderr holds `text`; false after `limit`, or when it has ended without.
    bool wait_for(const std::string& text, std::chrono::milliseconds limit = std::chrono::seconds(25));
    void signal(int number) const;

    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] const std::string& out() const { return out_; }
    [[nodiscard]] const std::string& err() const { return err_; }

  private:
    /// Reads what is there, waiting `limit` at most; false where nothing was, or both streams have ended.
    bool read_some(std::chrono::milliseconds limit);

    ScratchFolder temporary_;  ///< a launcher that is killed or whose worker has failed leaves its log directory there
    pid_t pid_ = -1;
    int out_fd_ = -1;
    int err_fd_ = -1;
    bool reaped_ = false;
    int code_ = -1;
    std::string out_;
    std::string err_;
};

/// A TCP port that nothing listens on just now, below the defaults 29400 and 29500, which other tests use, and below
/// the range from which the kernel takes those that nobody chose: one of these could be taken before it is used.
int free_port();

}  // namespace muster::test
