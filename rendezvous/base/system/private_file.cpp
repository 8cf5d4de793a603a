#include "rendezvous/base/system/private_file.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"

namespace muster {

bool is_private_to(uid_t user, mode_t mode, uid_t owner) {
    if (owner != user && owner != 0) return false;
    const mode_t none_of_others = owner == 0 && user != 0 ? 0037 : 0077;
    return (mode & none_of_others) == 0;
}

Result<std::string> read_private_file(const std::string& path, std::string_view what, std::string_view when_empty) {
    const auto wrong = [&](std::string why) { return Error{Errc::permission_denied, cat(what, " ", path, " ", why)}; };
    // The descriptor is asked, not the path: between two looks another file could take its place.
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) return error_from_errno(errno, cat("read ", what, " ", path));
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) return error_from_errno(errno, cat("look at ", what, " ", path));
    if (!S_ISREG(facts.st_mode)) return wrong("is no file");
    const auto user = ::geteuid();
    if (facts.st_uid != user && facts.st_uid != 0) return wrong("belongs to another user");
    if (!is_private_to(user, facts.st_mode, facts.st_uid))
        return wrong(
            "may be used by others than its owner; run chmod 600 on it, and make a new secret if others have "
            "accounts here. In Kubernetes, mount the Secret with defaultMode: 0400");
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
