#include "agent/driver/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "agent/commands/command_address.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/system/lock_file.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::string_view first_words = "# Workers of one node, written by muster, process ";

std::string first_line_of(pid_t writer) {
    return cat(first_words, writer, ".\n");
}

/// The process that wrote the file at `path`; 0: there is none, or it is empty, as a power cut leaves it. Error:
/// another program wrote it.
Result<pid_t> writer_of(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file.valid() && errno == ENOENT) return 0;
    struct stat facts {};
    if (file.valid() && ::fstat(file.get(), &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size == 0) return 0;
    char start[128];
    const auto count = file.valid() ? ::read(file.get(), start, sizeof start) : 0;
    std::string_view text(start, count > 0 ? static_cast<std::size_t>(count) : 0);
    pid_t writer = 0;
    if (text.starts_with(first_words)) {
        text.remove_prefix(first_words.size());
        if (parse_number(text.substr(0, text.find('.')), writer) && writer > 0) return writer;
    }
    return Error{Errc::invalid_argument, cat(path,
                                             " exists, and muster did not write it; remove it, or name another "
                                             "directory")};
}

std::string lock_of(const std::string& path) {
    return cat(path, ".lock");
}

/// False: somebody has removed or replaced the file that is locked.
bool is_at(const FileDescriptor& file, const std::string& path) {
    struct stat held {};
    struct stat there {};
    return ::fstat(file.get(), &held) == 0 && ::lstat(path.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

/// As open_locked(). An agent of another user on this host may look at it, too.
FileDescriptor lock_for(const std::string& path, int flags) {
    const auto name = lock_of(path);
    auto file = open_locked(name, flags, 0644);
    if (!file.valid() || is_at(file, name)) return file;
    // Its owner has just removed it.
    errno = EWOULDBLOCK;
    return {};
}

/// For who holds the lock, which goes last.
void remove_all(const std::string& path, pid_t writer) {
    const auto found = writer_of(path);
    if (found && *found == writer) ::unlink(path.c_str());
    ::unlink(draft_of(path).c_str());
    ::unlink(lock_of(path).c_str());
}

}  // namespace

class MetricsFile::Target {
  public:
    explicit Target(std::string path) : path_(std::move(path)) {}

    /// Of several pages that have gathered, the newest one. One that has only its first line ends the file.
    void write(std::string_view pages) {
        // A label may contain these words, but no line break.
        const auto before = pages.rfind(cat('\n', first_words));
        const auto newest = pages.substr(before == pages.npos ? 0 : before + 1);
        const bool is_last = newest == first_line_of(::getpid());
        if (is_last && has_lock()) remove_all(path_, ::getpid());
        if (is_last) return;
        auto done = claim();
        if (done) done = replace_file(path_, newest);
        if (!done && !std::exchange(failed_, true))
            log(LogLevel::warning, "--metrics-file: ", done.error().context,
                "; this node's metrics are not updated until a write succeeds, which is tried every few seconds");
        if (done) failed_ = false;
    }

  private:
    [[nodiscard]] bool has_lock() const { return lock_.valid() && is_at(lock_, lock_of(path_)); }

    /// Afterwards this process alone writes the file.
    Result<void> claim() {
        if (has_lock()) return {};
        auto lock = lock_for(path_, O_CREAT);
        const int failure = errno;
        const auto writer = writer_of(path_);
        if (!lock.valid() && failure != EWOULDBLOCK) return error_from_errno(failure, cat("open ", lock_of(path_)));
        if (!lock.valid())
            return Error{Errc::already_exists,
                         cat("another agent of a job of this name on this host",
                             writer && *writer > 0 ? cat(", process ", *writer, ",") : std::string(), " writes ", path_,
                             "; name each job (--rdzv-id)")};
        if (!writer) {
            ::unlink(lock_of(path_).c_str());
            return writer.error();
        }
        lock_ = std::move(lock);
        return {};
    }

    const std::string path_;
    FileDescriptor lock_;
    bool failed_ = false;
};

std::string MetricsFile::path_in(const std::string& directory, std::string_view job) {
    return cat(directory, "/muster_", job_in_name(job), ".prom");
}

MetricsFile::MetricsFile(std::shared_ptr<Target> target, Duration last_write_max)
    : writer_({.write = [target = std::move(target)](std::string_view pages) { target->write(pages); },
               .skipped = [](std::uint64_t) { return std::string(); }},
              {.buffer_max_bytes = 1 << 20, .patience = 0ms}),
      last_write_max_(last_write_max) {}

Result<std::unique_ptr<MetricsFile>> MetricsFile::open(const std::string& path, std::string_view page,
                                                       Duration last_write_max) {
    const auto directory = path.substr(0, path.rfind('/'));
    struct stat facts {};
    const bool is_there = ::stat(directory.c_str(), &facts) == 0;
    if (is_there ? !S_ISDIR(facts.st_mode) : errno == ENOENT || errno == ENOTDIR)
        return Error{is_there ? Errc::invalid_argument : Errc::not_found,
                     cat(directory, is_there ? " is no directory" : " does not exist",
                         "; name the directory of node_exporter's textfile collector")};
    std::unique_ptr<MetricsFile> file(new MetricsFile(std::make_shared<Target>(path), last_write_max));
    file->write(page);
    return file;
}

MetricsFile::~MetricsFile() {
    write({});
    writer_.flush(last_write_max_);
}

void MetricsFile::write(std::string_view page) {
    writer_.add(cat(first_line_of(::getpid()), page));
}

void MetricsFile::remove(const std::string& path, pid_t writer) {
    if (const auto lock = lock_for(path, 0); lock.valid()) remove_all(path, writer);
}

}  // namespace muster::agent
