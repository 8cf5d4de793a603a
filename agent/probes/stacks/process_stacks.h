// Prints the stacks of a process line by line, so that a reader has the first lines even if the rest never comes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace muster::agent {

/// The main thread, and the runtime's own that wait in collectives; of Python's other threads the Python frames alone.
/// A line is a word and what it is about:
///
///     thread 4242 python3
///     python Trainer.step (/job/train.py:31)     the innermost first
///     native clock_nanosleep (libc.so.6)             the innermost first; "12 frames in libpython3.11.so.1.0" for many
///     note   thread 4242: what could not be found out, and why
///
/// Each thread is held for as long as it is looked at, a few milliseconds, and let go. The process must not be our own.
void report_stacks(pid_t process, const std::function<void(std::string)>& line);

}  // namespace muster::agent
