#include "launcher/report_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text.h"

namespace muster::launcher {

namespace {

/// Beside the file, because rename() works within one file system only.
std::string temporary_name(const std::string& path) {
    return cat(path, ".", ::getpid(), ".tmp");
}

FileDescriptor make_temporary(const std::string& path) {
    const auto name = temporary_name(path);
    return FileDescriptor(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
}

constexpr int slow_reader_ms = 5'000;  // of a pipe, which must not hold up the launcher's end

bool write_all(int file, std::string_view text) {
    while (!text.empty()) {
        const auto count = ::write(file, text.data(), text.size());
        if (count >= 0) {
            text.remove_prefix(static_cast<std::size_t>(count));
        } else if (errno == EAGAIN) {
            pollfd waited{file, POLLOUT, 0};
            const int ready = ::poll(&waited, 1, slow_reader_ms);
            if (ready == 0) errno = ETIMEDOUT;
            if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/// What a symbolic link leads to; the link itself stays.
std::string behind_links(const std::string& path) {
    std::error_code failure;
    const auto target = std::filesystem::canonical(path, failure);
    return failure ? path : target.string();
}

bool is_stream(int stream, const struct stat& facts) {
    struct stat own {};
    return ::fstat(stream, &own) == 0 && own.st_dev == facts.st_dev && own.st_ino == facts.st_ino;
}

/// Our own stdout or stderr, under whatever name (/dev/stdout); a device or a pipe, which nobody may replace.
bool is_written_into(const std::string& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) return false;
    return !S_ISREG(facts.st_mode) || is_stream(STDOUT_FILENO, facts) || is_stream(STDERR_FILENO, facts);
}

bool write_into(const std::string& path, std::string_view text) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) return false;
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
        if (is_stream(stream, facts)) return write_all(stream, text);
    // A pipe that nobody reads is an error (ENXIO), and no wait.
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    return file.valid() && write_all(file.get(), text);
}

}  // namespace

std::optional<std::string> report_path(std::string_view file, const ReportNames& names) {
    std::string path;
    for (std::size_t i = 0; i < file.size(); ++i) {
        if (file[i] != '%') {
            path += file[i];
            continue;
        }
        const char letter = ++i < file.size() ? file[i] : '\0';
        switch (letter) {
            case '%': path += '%'; break;
            case 'p': path += cat(names.pid); break;
            case 'h':
            case 'j': {
                std::string name = letter == 'h' ? names.host : names.job;
                std::replace(name.begin(), name.end(), '/', '_');
                path += name;
                break;
            }
            default: return std::nullopt;
        }
    }
    return path;
}

Result<void> check_report_path(const std::string& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode))
        return Error{Errc::invalid_argument, cat("write the report ", path, ": it is a directory; name a file in it")};
    const auto target = behind_links(path);
    bool possible = ::access(target.c_str(), W_OK) == 0;
    if (!is_written_into(target)) {
        const auto made = make_temporary(target);
        possible = possible || made.valid();
        if (made.valid()) ::unlink(temporary_name(target).c_str());
    }
    if (!possible) return error_from_errno(errno, cat("write the report ", path));
    return {};
}

Result<void> write_report(const std::string& path, std::string_view text) {
    const auto target = behind_links(path);
    if (!is_written_into(target)) {
        const auto name = temporary_name(target);
        const auto file = make_temporary(target);
        if (file.valid() && write_all(file.get(), text) && ::fsync(file.get()) == 0 &&
            std::rename(name.c_str(), target.c_str()) == 0)
            return {};
        const int error = errno;
        if (file.valid()) ::unlink(name.c_str());
        // A file that is a mount point, or in a directory of others, as Kubernetes' /dev/termination-log is.
        const bool may_write_into = !file.valid() || error == EBUSY;
        if (!may_write_into || ::access(target.c_str(), W_OK) != 0)
            return error_from_errno(error, cat("write the report ", path));
    }
    if (write_into(target, text)) return {};
    return error_from_errno(errno, cat("write the report ", path));
}

}  // namespace muster::launcher
