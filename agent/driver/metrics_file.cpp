#include "agent/driver/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "agent/commands/command_address.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr Duration last_write_max = 1s;
constexpr std::string_view first_words = "# Workers of one node, written by muster, process ";

std::string first_line_of(pid_t writer) {
    return cat(first_words, writer, ".\n");
}

/// The process that wrote the file at `path`; 0: there is none. Error: another program wrote it.
Result<pid_t> writer_of(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file.valid() && errno == ENOENT) return 0;
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

/// The number of a dead agent may belong to another program by now.
bool is_another_agent(pid_t process) {
    if (process == 0 || process == ::getpid()) return false;
    const auto name = first_line(cat("/proc/", process, "/comm"));
    return !name.empty() && name == first_line("/proc/self/comm");
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
        if (newest == first_line_of(::getpid())) return MetricsFile::remove(path_, ::getpid());
        const auto done = replace_file(path_, newest);
        if (!done && !std::exchange(failed_, true))
            log(LogLevel::warning, done.error().context,
                "; this node's metrics are not updated until a write succeeds, which is tried every few seconds");
        if (done) failed_ = false;
    }

  private:
    const std::string path_;
    bool failed_ = false;
};

std::string MetricsFile::path_in(const std::string& directory, std::string_view job) {
    return cat(directory, "/muster_", job_in_name(job), ".prom");
}

MetricsFile::MetricsFile(std::shared_ptr<Target> target)
    : writer_({.write = [target = std::move(target)](std::string_view pages) { target->write(pages); },
               .skipped = [](std::uint64_t) { return std::string(); }},
              {.buffer_max_bytes = 1 << 20, .patience = 0ms}) {}

Result<std::unique_ptr<MetricsFile>> MetricsFile::open(const std::string& path, std::string_view page) {
    const auto writer = writer_of(path);
    if (!writer) return writer.error();
    if (is_another_agent(*writer))
        return Error{Errc::already_exists,
                     cat("another agent of a job of this name on this host, process ", *writer, ", writes ", path,
                         ", so the workers of this node are missing there; name each job (--rdzv-id)")};
    if (auto written = replace_file(path, cat(first_line_of(::getpid()), page)); !written) return written.error();
    return std::unique_ptr<MetricsFile>(new MetricsFile(std::make_shared<Target>(path)));
}

MetricsFile::~MetricsFile() {
    write({});
    writer_.flush(last_write_max);
}

void MetricsFile::write(std::string_view page) {
    writer_.add(cat(first_line_of(::getpid()), page));
}

void MetricsFile::remove(const std::string& path, pid_t writer) {
    const auto found = writer_of(path);
    if (!found || *found != writer) return;
    ::unlink(path.c_str());
    ::unlink(draft_of(path).c_str());
}

}  // namespace muster::agent
