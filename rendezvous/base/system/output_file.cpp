#include "rendezvous/base/system/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "rendezvous/base/text/text.h"

namespace muster {

bool is_stranger(const struct stat& facts) {
    return facts.st_uid != ::geteuid() && facts.st_uid != 0 && !S_ISCHR(facts.st_mode);
}

std::optional<uid_t> stranger_at(const std::string& path) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) == 0 && is_stranger(facts)) return facts.st_uid;
    if (::stat(path.c_str(), &facts) == 0 && is_stranger(facts)) return facts.st_uid;
    return std::nullopt;
}

int own_stream(const std::string& path) {
    struct stat facts {};
    struct stat own {};
    if (::stat(path.c_str(), &facts) != 0) return -1;
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
        if (::fstat(stream, &own) == 0 && own.st_dev == facts.st_dev && own.st_ino == facts.st_ino) return stream;
    return -1;
}

Error refuse_stranger(std::string_view purpose, const std::string& path, uid_t user) {
    return {Errc::permission_denied,
            cat(purpose, ' ', path, ": it belongs to user ", user, ", who could read it; name another file")};
}

/// On some network file systems what this process makes belongs to another user, such as nobody.
static bool makes_files_of(uid_t user, const std::string& path) {
    auto name = std::filesystem::path(path).replace_filename(".muster-owner-XXXXXX").string();
    const FileDescriptor made(::mkostemp(name.data(), O_CLOEXEC));
    if (!made.valid()) return false;
    ::unlink(name.c_str());
    struct stat facts {};
    return ::fstat(made.get(), &facts) == 0 && facts.st_uid == user;
}

Result<FileDescriptor> open_output_file(std::string_view purpose, const std::string& path, int flags) {
    const auto may_write = [&, is_own_stream = own_stream(path) >= 0](uid_t owner) {
        return is_own_stream || makes_files_of(owner, path);
    };
    if (const auto user = stranger_at(path); user && !may_write(*user)) return refuse_stranger(purpose, path, *user);
    struct stat facts {};
    const bool is_link = ::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode);
    flags |= O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (is_link ? 0 : O_NOFOLLOW);
    FileDescriptor file(::open(path.c_str(), flags, 0600));
    if (!file.valid() || ::fstat(file.get(), &facts) != 0) return error_from_errno(errno, cat(purpose, ' ', path));
    // It has come since.
    if (is_stranger(facts) && !may_write(facts.st_uid)) return refuse_stranger(purpose, path, facts.st_uid);
    return file;
}

}  // namespace muster
