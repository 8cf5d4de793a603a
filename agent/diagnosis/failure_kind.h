// Separates the cause of a failure from its victims. When one worker dies, its peers fail in their collectives a moment
// later, often before the real cause is reported. Within the error of the clocks the kind decides which failure is the
// first cause.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/wire/native/failure.h"

namespace muster::agent {

/// As our runtime's messages name it: "rank 3 (pid 42 on gpu01)".
struct WorkerName {
    std::int32_t rank = -1;
    std::int32_t pid = 0;  ///< 0: unknown. Such a message is not used.
    std::string host;
};

/// Judges a worker's end that is no success. `message` is the error file's (the exception itself, so it is asked
/// first), `stderr_tail` the last output, of which only the last traceback counts, or the last 8 KiB if there is none:
/// a warning about a connection in an hour-old line says nothing about the end.
///
///   never started, killed by a signal, or `cause` is the kernel's or the machine's doing -> killed
///   the end's text holds a message that victims are known by  -> communication_error
///   any other exit                                            -> worker_error
///
/// Of ranks that called different operations the one that our runtime names second is the odd one, and the others are
/// its victims (worker_runtime/shared_memory/shared_group.cpp, tcp_lanes.cpp); with two ranks that is a guess. Of a
/// checkpoint that all ranks could not save together the rank that the message names is blamed.
///
/// SIGABRT is judged by its text like an exit: it is how an uncaught C++ exception, and NCCL's watchdog, end a worker.
FailureKind failure_kind(const WorkerEnd& end, std::string_view message, std::string_view stderr_tail,
                         CauseKind cause = CauseKind::unknown, const WorkerName& self = {});

/// The known message that `text` holds, as it stands in the table; empty if none.
std::string_view known_victim_message(std::string_view text);

}  // namespace muster::agent
