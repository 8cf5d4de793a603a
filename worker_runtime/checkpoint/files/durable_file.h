// Files that survive a power failure once the call has returned, and writes from memory that bypass the page cache. New
// files have mode 0640 and new folders 0750, less the umask, because weights are private to the user and the group.
// Existing files keep their mode.
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

/// Called between pieces of a long write or read; an error ends it.
using Interruption = std::function<Result<void>()>;

/// Makes this descriptor use the page cache from now on. Returns false if it did already.
bool give_up_direct(int file);

/// Creates the file `path` with the first `size_bytes` of `memory`, and flushes it. `memory` must begin at a page and
/// extend to a multiple of file_alignment (rank_file.h), so that O_DIRECT can be used; if the file system does not
/// support it, the page cache is used. Errors: already_exists, io (ENOSPC, EROFS), with the file's name; a partial file
/// stays.
Result<void> write_new_file(const std::string& path, std::span<const std::byte> memory, std::uint64_t size_bytes,
                            const Interruption& interruption);

/// As write_new_file(), for a short text, through the page cache.
Result<void> write_new_text(const std::string& path, std::string_view text);

/// A new file that is written from beginning to end through the page cache, for content that is not all in memory.
class GrowingFile {
  public:
    /// Errors are those of write_new_file().
    static Result<GrowingFile> create(const std::string& path);
    Result<void> append(std::span<const std::byte> bytes);
    /// Flushes and closes the file. append() must not be called afterwards.
    Result<void> finish();

  private:
    GrowingFile(FileDescriptor file, std::string path);
    FileDescriptor file_;
    std::string path_;
};

/// Replaces the content of `path` by `text`: a reader finds the old text or the new one, never a part, and after a
/// power failure the new one.
Result<void> replace_text(const std::string& path, std::string_view text);

/// Returns the content of a file of at most `size_max` bytes. Errors: not_found, limit_exceeded, io.
Result<std::string> read_text(const std::string& path, std::uint64_t size_max);

/// Flushes a file, also what other processes have written to it.
Result<void> flush_file(const std::string& path);

/// Flushes a folder: names created, renamed or removed in it so far survive a power failure.
Result<void> flush_folder(const std::string& path);

/// Creates the folder, if it does not exist yet. not_found: its parent does not exist.
Result<void> make_folder(const std::string& path);

/// Creates the folder and its missing parents. All of them survive a power failure, also one that another process has
/// just created. io names the folder that cannot be created.
Result<void> make_folders(const std::string& path);

/// Returns the path from the root, without `.` and `..`.
std::string absolute_path(const std::string& path);

/// True if the file of these `facts`, in `directory`, belongs to this process's user, to the directory's owner, who may
/// replace any file in it anyway, or to the user to whom the file system gives new files of this process (NFS with
/// root_squash, mounts with uid=). A probe file shows the latter.
bool has_our_owner(const struct stat& facts, const std::string& directory);

/// True if a file or folder of that name exists.
bool exists(const std::string& path);

/// The names in a folder, without "." and "..".
Result<std::vector<std::string>> names_in(const std::string& path);

}  // namespace muster::runtime
