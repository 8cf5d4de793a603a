// Replaces a small file as a whole, for readers that may look at any time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster {

enum class FileMode { all_may_read, as_umask_says };

/// Readers see the old text or all of `text`, because a rename puts it in place. all_may_read is mode 0644. Links are
/// replaced, not followed. A device, a pipe or a socket is refused (invalid_argument). It is no promise against a crash
/// of the host.
Result<void> replace_file(const std::string& path, std::string_view text, FileMode mode = FileMode::all_may_read);

/// Writes all of `text`, over interruptions and short writes. False with the reason in errno.
bool write_whole(int file, std::string_view text);

/// The first `size` bytes of a file, or fewer at its end. Nothing with the reason in errno.
std::optional<std::string> read_front(int file, std::size_t size);

/// Where replace_file() writes before the rename. The name is the same each time, so that a process that is killed in
/// between leaves one file at most.
std::string draft_of(const std::string& path);

}  // namespace muster
