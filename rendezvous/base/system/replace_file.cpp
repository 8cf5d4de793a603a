#include "rendezvous/base/system/replace_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster {

/// Of a non-blocking pipe or terminal: somebody may have made stdout one, for all who share it. False: a file never has
/// more room later, and errno stays.
static bool wait_for_room(int file) {
    struct stat facts {};
    if (::fstat(file, &facts) != 0 || S_ISREG(facts.st_mode)) return false;
    pollfd ready{file, POLLOUT, 0};
    ::poll(&ready, 1, -1);
    return true;
}

bool write_whole(int file, std::string_view text) {
    while (!text.empty()) {
        const auto written = ::write(file, text.data(), text.size());
        if (written < 0 && (errno == EINTR || (errno == EAGAIN && wait_for_room(file)))) continue;
        if (written <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

std::optional<std::string> read_front(int file, std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t at = 0; at < size;) {
        const auto got = ::pread(file, bytes.data() + at, size - at, static_cast<off_t>(at));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        if (got == 0) bytes.resize(size = at);
        at += static_cast<std::size_t>(got);
    }
    return bytes;
}

std::string draft_of(const std::string& path) {
    return cat(path, ".new");
}

Result<void> replace_file(const std::string& path, std::string_view text) {
    const auto draft = draft_of(path);
    ::unlink(draft.c_str());
    // If another user's file or link has this name and cannot be removed, nothing is written to it.
    const FileDescriptor file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
    const bool has_mode = file.valid() && ::fchmod(file.get(), 0644) == 0;
    const bool done = has_mode && write_whole(file.get(), text) && std::rename(draft.c_str(), path.c_str()) == 0;
    if (done) return {};
    auto failure = error_from_errno(errno, cat("write ", printable_line(path)));
    if (file.valid()) ::unlink(draft.c_str());
    return failure;
}

Result<void> write_file(const std::string& path, std::string_view text) {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
    if (file.valid() && write_whole(file.get(), text)) return {};
    return error_from_errno(errno, cat("write ", printable_line(path)));
}

}  // namespace muster
