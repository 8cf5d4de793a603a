// Files that are there after a power cut once the call has returned, and memory that goes to one past the page cache.
// New ones are the user's and its group's (0640, folders 0750, less the umask): weights are nobody else's business.
// What is there already keeps its mode.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::runtime {

inline constexpr mode_t file_mode = 0640;

/// Asked between pieces of a long write or read; an error ends it.
using Interruption = std::function<Result<void>()>;

/// Reads and writes of this descriptor go through the page cache from now on. False where they did already.
bool give_up_direct(int file);

/// Makes the new file `path` of the first `size_bytes` of `memory`, and flushes it. `memory` begins at a page and goes
/// on with anything up to a multiple of file_alignment (rank_file.h), so that it can be written with O_DIRECT; where
/// the file system has none, through the page cache. already_exists, io (ENOSPC, EROFS): names the file; what was
/// written of it stays.
Result<void> write_new_file(const std::string& path, std::span<const std::byte> memory, std::uint64_t size_bytes,
                            const Interruption& interruption);

/// The same for a short text, through the page cache.
Result<void> write_new_text(const std::string& path, std::string_view text);

/// A new file that is written from front to end through the page cache, by whoever does not have all of it in memory.
class GrowingFile {
  public:
    /// Errors as those of write_new_file().
    static Result<GrowingFile> create(const std::string& path);
    Result<void> append(std::span<const std::byte> bytes);
    /// Flushes and closes it. Nothing may follow.
    Result<void> finish();

  private:
    GrowingFile(FileDescriptor file, std::string path);
    FileDescriptor file_;
    std::string path_;
};

/// Puts `text` in the place of `path`: a reader finds the old one or the new one, never a half, and after a power cut
/// the new one.
Result<void> replace_text(const std::string& path, std::string_view text);

/// All of a file of at most `size_max` bytes. not_found; limit_exceeded; io.
Result<std::string> read_text(const std::string& path, std::uint64_t size_max);

/// What somebody else has written to this file survives a power cut.
Result<void> flush_file(const std::string& path);

/// Names made, renamed or removed in this folder so far survive a power cut.
Result<void> flush_folder(const std::string& path);

/// Makes the folder; one that is there already is as good. not_found: its parent is gone.
Result<void> make_folder(const std::string& path);

/// Makes the folder and those above it that are missing; none of them goes in a power cut, nor does one that somebody
/// made just before. io: the one that cannot be made.
Result<void> make_folders(const std::string& path);

/// From the root, without `.` and `..`.
std::string absolute_path(const std::string& path);

/// True if the file of these `facts`, in `directory`, belongs to this process's user, to the directory's owner, who may
/// replace any file in it anyway, or to the user that the file system gives to new files of this process (NFS with
/// root_squash, mounts with uid=; a probe file tells).
bool has_our_owner(const struct stat& facts, const std::string& directory);

/// True once a file or folder of that name is there.
bool exists(const std::string& path);

/// The names in a folder, without "." and "..".
Result<std::vector<std::string>> names_in(const std::string& path);

}  // namespace muster::runtime
