#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "agent/probes/facts/fact_line.h"
#include "agent/probes/facts/looks.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Writes and syncs 1 MiB in a file that has no name any more. Empty: it worked.
std::string write_trouble(const std::string& path) {
    constexpr std::size_t size = std::size_t{1} << 20;
    // Without a name from the start where the file system can: a look that is killed leaves nothing behind.
    FileDescriptor file(::open(path.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
    if (!file.valid() && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        auto name = path + "/.muster-doctor-XXXXXX";
        file = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
        if (file.valid()) ::unlink(name.c_str());
    }
    if (!file.valid()) return std::strerror(errno);
    const bool is_written = write_whole(file.get(), std::string(size, 'm')) && ::fsync(file.get()) == 0;
    return is_written ? std::string() : errno_text(errno);
}

}  // namespace

void look_at_disk(const std::string& path, bool if_there) {
    struct statvfs disk {};
    if (::statvfs(path.c_str(), &disk) != 0) {
        if (!if_there || errno != ENOENT) print_fact("disk", {{"path", path}, {"failure", std::strerror(errno)}});
        return;
    }
    const auto before = std::chrono::steady_clock::now();
    const auto trouble = write_trouble(path);
    const auto took = std::chrono::steady_clock::now() - before;
    // A file system without a size (some of FUSE) says nothing about its room.
    print_fact("disk", {{"path", path},
                        {"free", disk.f_blocks == 0 ? "" : cat(std::uint64_t{disk.f_bavail} * disk.f_frsize)},
                        {"free-inodes", cat(std::uint64_t{disk.f_favail})},
                        {"inodes", cat(std::uint64_t{disk.f_files})},
                        {"ms", cat(std::chrono::duration_cast<std::chrono::milliseconds>(took).count())},
                        {"failure", trouble}});
}

}  // namespace muster::agent
