#include "agent/probes/check/health_folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t programs_max = 64;
constexpr std::size_t refused_max = 8;  ///< Sentences; the rest is a count.

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

CheckToRun check_to_run(const std::string& path, uid_t owner) {
    const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), &std::free);
    struct stat facts {};
    if (!real || ::stat(real.get(), &facts) != 0)
        return {{}, cat(printable_line(path), " is not run: ", errno_text(errno))};
    std::string program = real.get();
    // env, which starts it, would take it for a variable, and end well.
    if (program.find('=') != std::string::npos)
        return {{}, cat(printable_line(program), " is not run: no '=' may be in the path of a check; rename it")};
    auto why = why_refused(program, facts, owner);
    if (!why.empty()) return {{}, std::move(why)};
    return {std::move(program), {}};
}

HealthFolder read_health_folder(const std::string& folder, uid_t owner) {
    HealthFolder found;
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
    if (!open) {
        if (errno != ENOENT)
            found.refused.push_back(cat("the checks in ", printable_line(folder), " are not run: ", errno_text(errno)));
        return found;
    }
    struct stat facts {};
    const auto unread = [&] {
        found.refused.push_back(
            cat("the checks in ", printable_line(folder), " are not all read: ", errno_text(errno)));
    };
    if (::fstat(::dirfd(open.get()), &facts) != 0) {
        unread();
        return found;
    }
    if (auto why = why_refused(folder, facts, owner); !why.empty()) {
        found.refused.push_back(std::move(why));
        return found;
    }
    std::vector<std::string> paths;
    const dirent* entry = nullptr;
    while (errno = 0, entry = ::readdir(open.get()), entry != nullptr) {
        if (entry->d_name[0] == '.') continue;
        auto path = cat(folder, '/', entry->d_name);
        // One that cannot be read is refused below, as is a link to nothing: it is not gone.
        const bool is_program = ::stat(path.c_str(), &facts) != 0
                                    ? errno != ENOENT || ::lstat(path.c_str(), &facts) == 0
                                    : S_ISREG(facts.st_mode) && (facts.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0;
        if (is_program) paths.push_back(std::move(path));
    }
    if (errno != 0) unread();
    std::ranges::sort(paths);
    std::size_t more = 0;
    for (auto& path : paths) {
        auto why = found.programs.size() == programs_max
                       ? cat(printable_line(path), " is not run: at most ", programs_max, " checks of the folder are")
                       : check_to_run(path, owner).refused;
        if (why.empty())
            found.programs.push_back(std::move(path));
        else if (found.refused.size() < refused_max)
            found.refused.push_back(std::move(why));
        else
            ++more;
    }
    if (more > 0) found.refused.push_back(cat(more, " more files in ", printable_line(folder), " are not run"));
    return found;
}

}  // namespace muster::agent
