// Runs one of our programs beside the agent, because its work may take long or hang.
#pragma once

#include <sys/types.h>

#include <string>
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

/// In a session of its own: a terminal's Ctrl-C is not for it. `words` begins with the program, `inherited` keep their
/// numbers in the child, and nothing else but stderr is. Whoever starts it waits for it (waitpid).
Result<SideProcess> start_side_process(std::vector<std::string> words, const std::vector<int>& inherited);

}  // namespace muster::agent
