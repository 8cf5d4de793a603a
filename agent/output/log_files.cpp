#include "agent/output/log_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

// A file's lines are ordered with those of others to this accuracy, and its index is a thirtieth of its size at most,
// or 5 KB a second.
constexpr Duration mark_interval = 10ms;
constexpr std::uint64_t mark_bytes = 64 << 10;

/// A worker that was killed has left half a line, perhaps; the heading must not continue it.
bool ends_inside_line(int fd) {
    struct stat facts {};
    char last = '\n';
    if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0) return false;
    return ::pread(fd, &last, 1, facts.st_size - 1) == 1 && last != '\n';
}

}  // namespace

std::int64_t log_time_ns() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void LogFile::append(std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    const auto next_owner = take_next_owner();
    if (index_.valid() && (next_owner || now >= marked_at_ + mark_interval || size_ >= marked_size_ + mark_bytes)) {
        marked_at_ = now;
        mark(next_owner);
    }
    write(bytes);
}

void LogFile::write(std::string_view bytes) {
    while (!bytes.empty()) {
        is_writing_ = true;
        const auto written = ::write(fd_.get(), bytes.data(), bytes.size());
        is_writing_ = false;
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            if (!told_.exchange(true)) {
                log(LogLevel::error, "cannot write the log file ", path_, ": ", errno_text(errno),
                    "; the worker continues, and its further output is missing there");
            }
            return;
        }
        bytes.remove_prefix(static_cast<std::size_t>(written));
        size_ += static_cast<std::uint64_t>(written);
    }
}

void LogFile::begin_section(std::string_view heading, const std::optional<LogOwner>& owner) {
    const std::lock_guard lock(mutex_);
    if (heading.empty() || heading == heading_) return;
    heading_ = heading;
    take_next_owner();  // of a round in which nothing was printed
    const bool continues_line = ends_inside_line(fd_.get());
    struct stat facts {};
    const bool indexed = owner && ::fstat(fd_.get(), &facts) == 0 && S_ISREG(facts.st_mode);
    // Non-blocking, because a pipe of that name has no reader.
    if (indexed && !index_.valid())
        index_ = FileDescriptor(::open(log_index_path(path_).c_str(),
                                       O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640));
    if (indexed) size_ = static_cast<std::uint64_t>(facts.st_size);
    if (continues_line) write("\n");
    const auto line = cat(line_time(fd_.get()), heading, '\n');
    // First, so that no reader takes the heading for a worker's line.
    if (indexed) mark(owner, line.size());
    write(line);
}

void LogFile::change_owner(const LogOwner& owner) {
    const std::lock_guard lock(next_owner_mutex_);
    next_owner_ = owner;
}

std::optional<LogOwner> LogFile::take_next_owner() {
    const std::lock_guard lock(next_owner_mutex_);
    return std::exchange(next_owner_, std::nullopt);
}

/// One write, so that a disk that takes nothing leaves at most one line that is no mark.
void LogFile::mark(std::optional<LogOwner> owner, std::size_t heading_bytes) {
    marked_size_ = size_;
    if (!index_.valid()) return;
    if (owner) owner_ = owner;
    if (unnamed_marks_ == unnamed_marks_max) owner = owner_;
    unnamed_marks_ = owner ? 0 : unnamed_marks_ + 1;
    const auto line =
        to_line({.offset = size_, .begin = size_ + heading_bytes, .time_ns = log_time_ns(), .owner = owner});
    [[maybe_unused]] const auto written = ::write(index_.get(), line.data(), line.size());
}

std::string LogFiles::hanging() const {
    for (const auto& [path, known] : open_)
        if (const auto file = known.lock(); file && file->is_writing()) return path;
    return {};
}

std::shared_ptr<LogFile> LogFiles::open(const std::string& path, std::string_view heading,
                                        const std::optional<LogOwner>& owner, int& error_number) {
    std::erase_if(open_, [](const auto& entry) { return entry.second.expired(); });
    if (const auto known = open_.find(path); known != open_.end()) {
        if (auto file = known->second.lock()) {
            file->begin_section(heading, owner);
            return file;
        }
    }
    std::error_code ignored;  // open() below gives the reason that counts
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    FileDescriptor fd(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
    if (!fd.valid() && errno == EACCES)
        fd = FileDescriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.valid()) {
        error_number = errno;
        return nullptr;
    }
    auto file = std::make_shared<LogFile>(path, std::move(fd));
    file->begin_section(heading, owner);
    open_[path] = file;
    return file;
}

}  // namespace muster::agent
