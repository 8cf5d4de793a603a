// Turns "train.py", "-m train" or "./a.out" into a worker's argv. The program is checked before the rendezvous: a
// missing script found after all nodes have joined would cost every node a start.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/report/exit_code.h"

namespace muster::launcher {

struct Entry {
    std::vector<std::string> argv;  ///< argv[0] without '/' is looked up in PATH when a worker starts.
    /// True for PYTHON -u SCRIPT and PYTHON -u -m MODULE: a process that Python has started already can run it too.
    bool may_be_warm = false;
};

/// Why the program cannot be started, with the shell's exit code: 127 not found, 126 found but not executable.
struct NotRunnable {
    int exit_code = exit_codes::not_found;
    std::string why;
};

/// The interpreter is PYTHON_EXEC, else python3 of the active environment (VIRTUAL_ENV, then CONDA_PREFIX), else that
/// of the virtual environment that muster is installed in, else python3 or python in PATH. Without --no-python, -m and
/// --run-path, the file's content decides: ".py", a Python shebang, a zip archive or a directory with __main__.py, and
/// any other text is Python's; an ELF file and a script with another shebang run as they are.
///
/// --run-path starts a fresh interpreter that calls runpy.run_path; torchrun does it in a process spawned by
/// multiprocessing. The script sees the same __name__, sys.argv and environment; standard output is unbuffered.
std::variant<Entry, NotRunnable> resolve_entry(const LaunchConfig& config, const Environment& environment);

}  // namespace muster::launcher
