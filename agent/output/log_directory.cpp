#include "agent/output/log_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>

#include "rendezvous/base/system/absolute_path.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

namespace fs = std::filesystem;

std::string random_letters() {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    std::random_device random;
    std::string out;
    for (int i = 0; i < 8; ++i) out.push_back(letters[random() % letters.size()]);
    return out;
}

Error refused(int error_number, const std::string& path) {
    auto error = error_from_errno(error_number, cat("make the log directory ", path));
    error.context +=
        "; choose a place with room where this user may write (--log-dir or TMPDIR), or keep no files (--log-dir "
        "/dev/null)";
    return error;
}

/// A directory that was not there before, as mkdtemp makes it, with eight random letters as Python's has.
Result<std::string> make_fresh(const std::string& prefix) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        std::string path = prefix + random_letters();
        if (::mkdir(path.c_str(), 0700) == 0) return path;
        if (errno != EEXIST) return refused(errno, path);
    }
    return Error{Errc::already_exists, cat("make a log directory ", prefix, "*: 100 names were in use")};
}

}  // namespace

std::string temporary_directory(const std::map<std::string, std::string>& environment) {
    const auto found = environment.find("TMPDIR");
    const std::string named = found == environment.end() ? "" : found->second;
    for (const auto& place : {named, std::string("/tmp"), std::string("/var/tmp")})
        if (!place.empty() && ::access(place.c_str(), W_OK | X_OK) == 0) return absolute_path(place);
    return named.empty() ? "/tmp" : absolute_path(named);
}

Result<void> LogDirectory::make(const std::string& path) {
    std::error_code failure;
    fs::create_directories(path, failure);
    if (failure) return refused(failure.value(), path);
    if (!fs::is_directory(path, failure))
        return Error{Errc::invalid_argument, cat("--log-dir: ", path, " is a file; write a directory or /dev/null")};
    return {};
}

Result<void> LogDirectory::make_base() {
    if (config_.none || !base_.empty()) return {};
    if (config_.base.empty()) {
        base_ = MUSTER_TRY(make_fresh(config_.temporary + "/torchelastic_"));
        return {};
    }
    if (auto made = make(config_.base); made.has_error()) return made;
    base_ = config_.base;
    return {};
}

Result<std::string> LogDirectory::run_directory() {
    if (config_.none || !run_.empty()) return run_;
    if (auto base = make_base(); base.has_error()) return base.error();
    std::string job = config_.job;
    std::ranges::replace(job, '/', '_');
    run_ = MUSTER_TRY(make_fresh(cat(base_, '/', job, '_')));
    return run_;
}

void LogDirectory::set_aside(const std::string& error_file, const std::string& mark) {
    std::error_code ignored;
    auto aside = fs::path(error_file);
    aside.replace_extension(cat(".", mark, ".json"));
    if (fs::exists(error_file, ignored)) fs::rename(error_file, aside, ignored);
}

void LogDirectory::remove_if_empty() {
    if (!run_.empty()) ::rmdir(run_.c_str());  // that of an agent which never joined a round
    if (const auto own = own_base(); !own.empty()) remove_empty_folders(own);
}

void remove_empty_folders(const std::string& path) {
    std::error_code failure;
    std::vector<fs::path> directories;
    for (auto entry = fs::recursive_directory_iterator(path, failure); !failure && entry != fs::end(entry);
         entry.increment(failure))
        if (entry->is_directory(failure) && !entry->is_symlink(failure)) directories.push_back(entry->path());
    // Children come after their parents, so the way back empties each before its parent's turn. rmdir refuses the
    // others.
    for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory)
        ::rmdir(directory->c_str());
    ::rmdir(path.c_str());
}

}  // namespace muster::agent
