// The Python program of a standby process: imports, waits, and becomes the worker. It needs the standard library only,
// because muster's own package may not be installed for the user's interpreter.
//
// The worker's program must not notice: __main__, sys.argv, sys.path, os.environ, streams and tracebacks are those of a
// normal start. What differs: two outer frames ("<string>") in a dump of stacks and in inspect.stack(), modules that
// are imported already, the age of the process, /proc/PID/cmdline and /proc/PID/environ.
#pragma once

#include <string>

#include "agent/supervision/process_host.h"

namespace muster::agent {

/// Beside workers a standby process imports with idle priority, where the launcher may raise it again. Where the node
/// waits for it, any other process of the host would else make the node late.
enum class StandbyImport { idle, waited_for };

/// `imports` are names of modules, separated by commas. Empty: torch and torch._dynamo, which the first DDP model or
/// optimizer imports, if they are installed.
///
/// It ends with a line on stderr if the imports have read a variable that each round sets. A worker that changes,
/// before its own import of torch, a variable that libraries read at that import executes its normal command, with a
/// line on stderr.
///
/// The command of the standby process for `worker`, whose argv is PYTHON -u SCRIPT ... or PYTHON -u -m MODULE ... Its
/// descriptor 3 is a seqpacket socket: it sends "r" when it is ready, receives "t" with a worker's image
/// (guardian_wire.h), stdout and stderr, and sends "g" when it is the worker.
WorkerCommand standby_command(const WorkerCommand& worker, const std::string& imports, StandbyImport priority);

}  // namespace muster::agent
