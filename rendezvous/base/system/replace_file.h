// Replaces a small file as a whole, for readers that may look at any time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster {

/// Readers see the old text or all of `text`, because a rename puts it in place. Its mode is 0644. Links and devices
/// are replaced, not followed: the path is none that a user gives. It is no promise against a crash of the host.
Result<void> replace_file(const std::string& path, std::string_view text);

/// As a shell's `>`, for a path that a user gives: links are followed, and a device or a pipe gets the text. A pipe
/// without a reader is an error at once.
Result<void> write_file(const std::string& path, std::string_view text);

/// Writes all of `text`, over interruptions and short writes, also to a non-blocking pipe that is full for a while.
/// False with the reason in errno.
bool write_whole(int file, std::string_view text);

/// The first `size` bytes of a file, or fewer at its end. Nothing with the reason in errno.
std::optional<std::string> read_front(int file, std::size_t size);

/// Where replace_file() writes before the rename. The name is the same each time, so that a process that is killed in
/// between leaves one file at most.
std::string draft_of(const std::string& path);

}  // namespace muster
