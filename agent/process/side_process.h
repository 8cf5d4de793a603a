// Runs one of our programs beside the agent, because its work may take long or hang.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

struct SideProcess {
    pid_t pid = -1;
    FileDescriptor ended;   ///< A pidfd.
    FileDescriptor output;  ///< Read end of its stdout, non-blocking.
};

/// Where a program of ours that people do not call is: beside our own program, as in a build tree; in libexec, as where
/// it is installed; else the bare name, for PATH.
std::string side_program(const std::string& name);

/// What fits into a pipe that nobody reads.
inline constexpr std::size_t side_input_bytes_max = 4096;

/// In a process group of its own: a terminal's Ctrl-C is not for it. It stays in this process's session, by which
/// GuardianPair tells it from what a lost guardian has left. `words` begins with the program, `inherited` keep their
/// numbers in the child, `input` is all that it reads from stdin (at most side_input_bytes_max), and it has nothing
/// else but stderr. Its environment is this process's without agents_own_variables. Whoever starts it waits for it
/// (waitpid).
Result<SideProcess> start_side_process(std::vector<std::string> words, const std::vector<int>& inherited,
                                       std::string_view input = {});

}  // namespace muster::agent
