// Extracts a worker's last error text and recognizes known messages in it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/wire/native/failure_cause.h"

namespace muster::agent {

/// The last 8 KiB of `text`.
std::string_view last_bytes(std::string_view text);

/// `message` (the error file's), or of the tail the part from the last traceback on, or last_bytes(): a warning in an
/// hour-old line says nothing about the end.
std::string_view error_text(std::string_view message, std::string_view stderr_tail);

struct KnownError {
    CauseKind kind = CauseKind::unknown;
    std::string text;
};

/// The cause that a known text in `words` names, with what to do; empty if none does.
std::optional<KnownError> known_error(std::string_view words);

}  // namespace muster::agent
