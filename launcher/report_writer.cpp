#include "launcher/report_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text.h"

namespace muster::launcher {

namespace {

/// Beside the file, because rename() works within one file system only.
std::string temporary_name(const std::string& path) {
    return cat(path, ".", ::getpid(), ".tmp");
}

Result<FileDescriptor> make_temporary(const std::string& path) {
    const auto name = temporary_name(path);
    FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file.valid()) return error_from_errno(errno, cat("write the report ", path));
    return file;
}

bool write_all(int file, std::string_view text) {
    while (!text.empty()) {
        const auto count = ::write(file, text.data(), text.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
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
    auto made = make_temporary(path);
    if (!made) return made.error();
    ::unlink(temporary_name(path).c_str());
    return {};
}

Result<void> write_report(const std::string& path, std::string_view text) {
    auto file = make_temporary(path);
    if (!file) return file.error();
    const auto name = temporary_name(path);
    if (write_all(file->get(), text) && ::fsync(file->get()) == 0 && std::rename(name.c_str(), path.c_str()) == 0)
        return {};
    auto error = error_from_errno(errno, cat("write the report ", path));
    ::unlink(name.c_str());
    return error;
}

}  // namespace muster::launcher
