// The file in which a worker reports its error (TORCHELASTIC_ERROR_FILE), as torch's @record writes it. The worker's
// text is not trusted: size, nesting and types are checked. A text that is not an error file is shown unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/wire/native/failure.h"

namespace muster::agent {

/// More is not read. A Python traceback of 1,000 frames has about 100 KiB.
inline constexpr std::size_t error_file_bytes_max = 1024 * 1024;

struct WorkerError {
    std::string message;           ///< Text for the report: the traceback if there is one, with the message at its end.
    std::int64_t timestamp_s = 0;  ///< Seconds since 1970 on the worker's clock. 0: not given.
};

/// Reads {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp": "..."}}} and
/// {"message": "...", "timestamp": N}. Anything else, an unfinished file included (the worker may have been killed
/// while it wrote), becomes a message that starts with "unreadable error file: " and quotes its first bytes. The
/// message is cut to its last 16 KiB: a traceback's end tells most.
WorkerError parse_error_file(std::string_view text);

/// The launcher's own error file, for the program that has started it. `workers` is the file of the worker that failed
/// first, to which the exit code is added as torchrun does (a signal's is negative). Where it has left none, or none
/// that can be read, `report` says what is known.
std::string launcher_error_file(std::string_view workers, const Failure& first, std::string_view report);

}  // namespace muster::agent
