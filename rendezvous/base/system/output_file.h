// Files that a user has named for what this process writes. Others of the host may own a file, pipe or link of that
// name, and could read or redirect what is written into it.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster {

/// Neither this user nor root owns it, and it is no character device.
bool is_stranger(const struct stat& facts);

/// The owner of a stranger's file, pipe or link at `path`, or of what a link there leads to.
std::optional<uid_t> stranger_at(const std::string& path);

/// The descriptor if `path` is this process's stdout or stderr under any name (/dev/stdout), else -1. It may be written
/// to, whoever owns its pipe or terminal.
int own_stream(const std::string& path);

/// "`purpose` `path`: it belongs to user 1001, who could read it; name another file".
Error refuse_stranger(std::string_view purpose, const std::string& path, uid_t user);

/// Opens it for writing, with `flags` too; a new file is its owner's alone. A link of this user's or root's is
/// followed. Refused (permission_denied): what is a stranger's. A pipe without a reader fails with ENXIO instead of
/// blocking, and the descriptor is non-blocking. `purpose` begins the errors: "write the report".
Result<FileDescriptor> open_output_file(std::string_view purpose, const std::string& path, int flags);

}  // namespace muster
