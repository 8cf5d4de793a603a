#include "agent/evidence/health_folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t programs_max = 64;

/// Empty: it may run.
std::string why_refused(const std::string& path, const struct stat& facts, uid_t owner) {
    const auto shown = printable_line(path);
    if (facts.st_uid != owner)
        return cat(shown, " is not run: it belongs to user ", facts.st_uid, ", who could change it; run: chown root ",
                   shown);
    if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return cat(shown, " is not run: others than its owner can change it; run: chmod go-w ", shown);
    return {};
}

}  // namespace

HealthFolder read_health_folder(const std::string& folder, uid_t owner) {
    HealthFolder found;
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
    if (!open) {
        if (errno != ENOENT)
            found.refused.push_back(
                cat("the checks in ", printable_line(folder), " are not run: ", std::strerror(errno)));
        return found;
    }
    struct stat facts {};
    if (::fstat(::dirfd(open.get()), &facts) != 0) return found;
    if (auto why = why_refused(folder, facts, owner); !why.empty()) {
        found.refused.push_back(std::move(why));
        return found;
    }
    std::vector<std::string> paths;
    while (const auto* entry = ::readdir(open.get())) {
        if (entry->d_name[0] == '.') continue;
        auto path = cat(folder, '/', entry->d_name);
        const bool is_program = ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
                                (facts.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0;
        if (is_program) paths.push_back(std::move(path));
    }
    std::ranges::sort(paths);
    for (auto& path : paths) {
        std::string why;
        if (::stat(path.c_str(), &facts) != 0) continue;
        if (found.programs.size() == programs_max)
            why = cat(printable_line(path), " is not run: at most ", programs_max, " checks of the folder are");
        else
            why = why_refused(path, facts, owner);
        if (why.empty())
            found.programs.push_back(std::move(path));
        else
            found.refused.push_back(std::move(why));
    }
    return found;
}

}  // namespace muster::agent
