// Processes whose system calls a test sees one by one, and may end them in (ptrace). Linux on x86-64.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace muster::test {

enum class Moment { entry, exit };

/// A thread stands before a system call has done anything, or behind it.
struct SyscallStop {
    pid_t process = 0, thread = 0;
    Moment moment = Moment::entry;
    std::uint64_t number = 0;
    std::array<std::uint64_t, 6> arguments{};
    std::int64_t result = 0;  ///< at its exit: negative is an errno
};

enum class Next {
    go_on,
    hold,      ///< ask again in a millisecond; the process's other threads go on
    fail,      ///< at an entry: the call is not made, and gives EIO (x86-64 only)
    kill_all,  ///< SIGKILL for this process, and for the others a moment later, as an agent does
};

class Tracer {
  public:
    using Watcher = std::function<Next(const SyscallStop&)>;

    /// Can this process trace others? Some containers forbid it.
    static bool allowed();

    /// Forks; `body` gives the exit code. The caller must have one thread, and no child but those of this object.
    pid_t start(const std::function<int()>& body);
    /// The same, and all of the process's threads are watched.
    pid_t start_watched(const std::function<int()>& body);
    /// Until all have ended: their wait status by process. Who is still there after `limit` is killed.
    std::map<pid_t, int> run(const Watcher& watcher, std::chrono::seconds limit = std::chrono::seconds(60));

    ~Tracer();

  private:
    void handle(pid_t thread, int status);
    void ask(const SyscallStop& stop);
    void go_on(pid_t thread, int signal = 0);
    void kill_all(pid_t first);

    Watcher watcher_;
    std::set<pid_t> alive_;                                                          // processes
    std::map<pid_t, pid_t> process_of_;                                              // by thread
    std::map<pid_t, std::pair<std::uint64_t, std::array<std::uint64_t, 6>>> calls_;  // by thread: the one it is in
    std::vector<SyscallStop> held_;
    std::set<pid_t> failing_;  // threads in a call that is to fail
    std::map<pid_t, int> ends_;
};

/// True when `call` is mark(): how a watched process tells the test where it is.
bool is_mark(const SyscallStop& stop, int which);
/// A system call that does nothing, and that nobody else makes.
void mark(int which);

}  // namespace muster::test
