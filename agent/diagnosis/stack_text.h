// Formats the output of muster-stacks about a worker (agent/probes/stacks/process_stacks.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::agent {

struct StackText {
    std::vector<std::string> lines;  ///< Indented. Empty: nothing is known.
    /// Where the main thread is: "step (/job/train.py:31), in clock_nanosleep (libc.so.6)", without Python
    /// "raise (libc.so.6), from train (trainer)"; empty: not known.
    std::string top;
    /// The same for comparing ranks: without the system call, but with the line of the program that called a library:
    /// "broadcast (/lib/torch/distributed_c10d.py:2714), from commit (/job/train.py:44)".
    std::string place;
};

/// Of `output` whole lines count, the last one may have been cut; words that are not known are left out.
StackText read_stacks(std::string_view output);

}  // namespace muster::agent
