#include "launcher/report/report_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/system/output_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// Removes its file unless it was renamed.
struct Temporary {
    std::string name;
    FileDescriptor file;
    Temporary(std::string path, int descriptor) : name(std::move(path)), file(descriptor) {}
    ~Temporary() {
        if (file.valid()) ::unlink(name.c_str());
    }
    Temporary& operator=(Temporary&&) = delete;
};

/// A new file beside `path`, because rename() works only within one file system. Its name is random, so that no other
/// user can put a file or a link there first. It has the mode of this user's file at `path`; without one only this user
/// may read it, because it contains lines of the workers' stderr.
Temporary make_temporary(const std::string& path) {
    std::random_device random;
    auto name = cat(path, ".", ::getpid(), ".", random(), random(), ".tmp");
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat facts {};
    if (file < 0) return {std::move(name), file};  // errno says why
    const bool is_ours = ::stat(path.c_str(), &facts) == 0 && facts.st_uid == ::geteuid();
    if (is_ours && ::fchmod(file, facts.st_mode & 0777) != 0) {
        // The stricter mode stays.
    }
    return {std::move(name), file};
}

constexpr std::chrono::seconds slow_reader{
    5};  // Timeout for the reader of a pipe: it must not delay the launcher's exit.

/// Returns false with errno ETIMEDOUT if the reader is too slow. Each chunk fits into a pipe that is ready for writing,
/// so that write() does not block.
bool write_all(int file, std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + slow_reader;
    while (!text.empty()) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
        pollfd waited{file, POLLOUT, 0};
        const int ready = ::poll(&waited, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
        if (ready == 0) errno = ETIMEDOUT;
        if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
        if (ready < 0) continue;
        const auto count = ::write(file, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
        if (count >= 0)
            text.remove_prefix(static_cast<std::size_t>(count));
        else if (errno != EINTR && errno != EAGAIN)
            return false;
    }
    return true;
}

constexpr std::string_view purpose = "write the report";

/// The target of a symbolic link; the link itself stays. A stranger's link, and one that the kernel refuses to follow
/// (fs.protected_symlinks), are not followed.
std::string behind_links(const std::string& path) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0 || is_stranger(facts) || ::stat(path.c_str(), &facts) != 0) return path;
    std::error_code failure;
    const auto target = std::filesystem::canonical(path, failure);
    return failure ? path : target.string();
}

/// True for a stream of this process, a device or a pipe: these are never replaced.
bool is_written_into(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && (!S_ISREG(facts.st_mode) || own_stream(path) >= 0);
}

/// True for a file that rename() does not replace, although new ones can be made beside it: a stranger's in a sticky
/// directory such as /tmp.
bool is_kept_by_directory(const std::string& path) {
    auto parent = std::filesystem::path(path).parent_path();
    struct stat facts {};
    const bool is_sticky = ::stat(parent.empty() ? "." : parent.c_str(), &facts) == 0 && (facts.st_mode & S_ISVTX) != 0;
    return is_sticky && facts.st_uid != ::geteuid() && ::geteuid() != 0 && stranger_at(path).has_value();
}

/// True if rename() fails for a reason that still permits writing in place: a mount point, or a file in a folder of
/// another user, such as Kubernetes' /dev/termination-log.
bool is_irreplaceable(int error) {
    return error == EBUSY || error == EPERM || error == EACCES || error == EROFS || error == ENAMETOOLONG;
}

Result<void> write_into(const std::string& path, std::string_view text) {
    const auto failed = [&] { return error_from_errno(errno, cat(purpose, ' ', path)); };
    if (const int stream = own_stream(path); stream >= 0) return write_all(stream, text) ? Result<void>() : failed();
    // Links are resolved by now, but for those of /proc/self/fd to pipes.
    const auto file = MUSTER_TRY(open_output_file(purpose, path, 0));
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) return failed();
    if (S_ISREG(facts.st_mode) && ::ftruncate(file.get(), 0) != 0) return failed();
    return write_all(file.get(), text) ? Result<void>() : failed();
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
                std::ranges::replace(name, '/', '_');
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
        return Error{Errc::invalid_argument, cat(purpose, ' ', path, ": it is a directory; name a file in it")};
    const auto target = behind_links(path);
    const auto user = stranger_at(target);
    // An open stream may be written to, whoever owns its pipe or terminal.
    bool possible = own_stream(target) >= 0 || (!user && ::access(target.c_str(), W_OK) == 0);
    if (!is_written_into(target)) {
        const auto made = make_temporary(target);
        possible = possible || (made.file.valid() && !is_kept_by_directory(target));
    }
    if (possible) return {};
    return user ? refuse_stranger(purpose, path, *user) : error_from_errno(errno, cat(purpose, ' ', path));
}

Result<void> write_report(const std::string& path, std::string_view text) {
    const auto target = behind_links(path);
    if (!is_written_into(target)) {
        auto made = make_temporary(target);
        if (made.file.valid() && write_all(made.file.get(), text) && ::fsync(made.file.get()) == 0 &&
            std::rename(made.name.c_str(), target.c_str()) == 0) {
            made.file = {};
            return {};
        }
        const int error = errno;
        if (!is_irreplaceable(error) || ::access(target.c_str(), W_OK) != 0)
            return error_from_errno(error, cat(purpose, ' ', path));
    }
    return write_into(target, text);
}

}  // namespace muster::launcher
