// Records what watched processes do to the files below a folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/checkpoint/disk_model.h"
#include "tests/integration/checkpoint/shared_board.h"
#include "tests/integration/checkpoint/tracer.h"

namespace muster::test {

class DiskRecorder {
  public:
    /// Below `root`, which must be empty.
    DiskRecorder(std::string root, const SharedBoard& board);

    /// For every stop of every watched process.
    void watch(const SyscallStop& stop);
    /// When they have ended: records what calls have done in which they were killed.
    void settle();

    [[nodiscard]] const std::vector<DiskEvent>& events() const { return events_; }
    /// A call that changes files in a way that is not understood; empty: there was none.
    [[nodiscard]] const std::string& misunderstood() const { return misunderstood_; }
    /// The file or folder that a call at its entry is about; empty where it neither makes, changes nor flushes one.
    [[nodiscard]] static std::string path_of_call(const SyscallStop& stop);
    /// What kind of fsync the call is; empty where it is none, or not below the root.
    [[nodiscard]] std::string flush_of(const SyscallStop& stop) const;

  private:
    /// The call that a thread is in, and what must be known before it has happened.
    struct Before {
        SyscallStop stop;
        std::string path, new_path;
        std::optional<unsigned long> inode{}, replaced{};  ///< of what has the path, and the new path
        std::int64_t safe = 0;
    };
    void enter(const SyscallStop& stop);
    void record(const Before& before);
    [[nodiscard]] bool has_happened(const Before& before) const;
    void add(DiskEvent event, const Before& before);
    void add_name(DiskEvent::Kind kind, const Before& before);
    [[nodiscard]] bool below(const std::string& path) const;
    /// The number of what has this path now.
    int number(const std::string& path);

    std::string root_;
    const SharedBoard& board_;
    std::map<unsigned long, int> numbers_;  ///< by inode
    int next_ = 1;
    std::map<pid_t, Before> under_way_;  ///< by thread
    std::vector<DiskEvent> events_;
    std::string misunderstood_;
};

}  // namespace muster::test
