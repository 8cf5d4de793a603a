// How a worker ended: a sum type in the code and on the wire. One int for an exit status would have to be decoded again
// by every reader.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace muster {

struct Exited {
    std::int32_t code = 0;
    friend bool operator==(const Exited&, const Exited&) = default;
};

struct Signaled {
    std::int32_t signal = 0;
    bool core_dumped = false;
    friend bool operator==(const Signaled&, const Signaled&) = default;
};

/// The process image never came to life. `stage` names the system call or step that failed ("execvpe", "chdir",
/// "open stdout"), `error_number` is its errno.
struct NotStarted {
    std::int32_t error_number = 0;
    std::string stage;
    friend bool operator==(const NotStarted&, const NotStarted&) = default;
};

using WorkerEnd = std::variant<Exited, Signaled, NotStarted>;

/// Exit codes by which a worker speaks to its launcher: the job is not to be started again here. 76, "saved and left":
/// by whoever queues the job, yes; 77: by nobody.
inline constexpr std::int32_t saved_and_left_code = 76;
inline constexpr std::int32_t never_again_code = 77;

/// True for Exited{76} alone.
bool saved_and_left(const WorkerEnd& end);

/// True for Exited{0} alone.
bool succeeded(const WorkerEnd& end);

/// "exit code 7", "signal 9 (SIGKILL)", "signal 11 (SIGSEGV), core dumped", "not started: execvpe: No such file...".
std::string describe(const WorkerEnd& end);

/// "SIGKILL" for 9; "signal 99" for a number without a name.
std::string signal_name(int signal);

}  // namespace muster
