#include "rendezvous/base/system/private_file.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"

namespace muster {

Result<std::string> read_private_file(const std::string& path, std::string_view what, std::string_view when_empty) {
    const auto wrong = [&](std::string why) { return Error{Errc::permission_denied, cat(what, " ", path, " ", why)}; };
    // The descriptor is asked, not the path: between two looks another file could take its place.
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) return error_from_errno(errno, cat("read ", what, " ", path));
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) return error_from_errno(errno, cat("look at ", what, " ", path));
    if (!S_ISREG(facts.st_mode)) return wrong("is no file");
    if ((facts.st_mode & 0077) != 0)
        return wrong(
            "may be used by others than its owner; run chmod 600 on it, and make a new secret if others have "
            "accounts here");
    if (facts.st_uid != ::geteuid() && facts.st_uid != 0) return wrong("belongs to another user");
    std::string content(private_file_bytes_max + 1, '\0');
    const auto size = ::read(file.get(), content.data(), content.size());
    if (size < 0) return error_from_errno(errno, cat("read ", what, " ", path));
    if (static_cast<std::size_t>(size) > private_file_bytes_max)
        return wrong(cat("has more than ", private_file_bytes_max, " bytes"));
    content.resize(static_cast<std::size_t>(size));
    while (content.ends_with('\n') || content.ends_with('\r')) content.pop_back();
    if (content.empty()) return wrong(cat("is empty; ", when_empty));
    // Children inherit this until they execute another program. The kernel refuses it only for unknown values.
    (void)::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return content;
}

}  // namespace muster
