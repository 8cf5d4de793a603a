#include "rendezvous/events/files/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <random>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/system/lock_file.h"
#include "rendezvous/base/system/output_file.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/events/event.h"

namespace muster {

namespace {

constexpr std::string_view purpose = "write events to";

std::uint64_t count_lines(std::string_view text) {
    return static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
}

}  // namespace

/// The thread's side. Outlives the EventFile if the thread hangs in a write.
class EventFile::Target {
  public:
    Target(std::string path, Rotation rotation) : path_(std::move(path)), rotation_(rotation) {
        std::random_device random;
        name_ = cat("file-", random());
    }

    Result<void> open() {
        auto file = MUSTER_TRY(open_output_file(purpose, path_, O_CREAT | O_APPEND));
        return use(std::move(file));
    }

    void write(std::string_view text) {
        const auto max = rotation_.file_bytes_max;
        const bool is_full = max > 0 && is_regular_ && size_ + text.size() > max && size_ > 0;
        // The old file stays in use for a while, and each write tries again.
        if (is_full && !rotate() && size_ + text.size() > 2 * max) {
            lost_count_ += count_lines(text);
            return;
        }
        if (lost_count_ > 0) {
            const auto told = dropped_line(lost_count_, "the target did not take them");
            if (write_lines(told) == told.size()) lost_count_ = 0;
        }
        const auto written = lost_count_ > 0 ? 0 : write_lines(text);
        lost_count_ += count_lines(text.substr(written));
    }

    std::string dropped_line(std::uint64_t count, std::string_view why) {
        Event dropped{.kind = EventKind::events_dropped,
                      .text = cat(count, count == 1 ? " event was" : " events were", " dropped: ", why)};
        dropped.facts.dropped_count = static_cast<std::int64_t>(count);
        return event_line(dropped, {name_, ++dropped_sequence_, std::chrono::system_clock::now().time_since_epoch()});
    }

  private:
    Result<void> use(FileDescriptor file) {
        struct stat facts {};
        if (::fstat(file.get(), &facts) != 0) return error_from_errno(errno, cat(purpose, ' ', path_));
        is_regular_ = S_ISREG(facts.st_mode);
        size_ = is_regular_ ? static_cast<std::size_t>(facts.st_size) : 0;
        ::fcntl(file.get(), F_SETFL, O_APPEND);  // The thread may wait.
        file_ = std::move(file);
        return {};
    }

    /// Returns the size of the whole lines that were written. No half line stays in a file.
    std::size_t write_lines(std::string_view text) {
        std::size_t done = 0;
        while (done < text.size()) {
            const auto written = ::write(file_.get(), text.data() + done, text.size() - done);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) {
                report(errno);
                return cut(text, done);
            }
            done += static_cast<std::size_t>(written);
            size_ += static_cast<std::size_t>(written);
        }
        is_failing_ = false;
        return done;
    }

    std::size_t cut(std::string_view text, std::size_t done) {
        const auto line_end = done == 0 ? std::string_view::npos : text.rfind('\n', done - 1);
        const auto kept = line_end == std::string_view::npos ? 0 : line_end + 1;
        struct stat facts {};
        // Only a file that nobody else has written to since can be cut.
        if (is_regular_ && done > kept && ::fstat(file_.get(), &facts) == 0 &&
            static_cast<std::size_t>(facts.st_size) == size_ &&
            ::ftruncate(file_.get(), facts.st_size - static_cast<off_t>(done - kept)) == 0)
            size_ -= done - kept;
        return kept;
    }

    void report(int error) {
        if (std::exchange(is_failing_, true)) return;
        log(LogLevel::warning, "cannot write events to ", path_, ": ", errno_text(error),
            "; the job continues without them until there is room");
    }

    [[nodiscard]] std::string beside(auto which) const {
        const auto stem = path_.substr(0, path_.size() - std::string_view(".jsonl").size());
        return cat(stem, ".", which, ".jsonl");
    }

    bool rotate() {
        const auto moved = move_files();
        if (!moved && !std::exchange(cannot_rotate_, true))
            log(LogLevel::warning, moved.error().context,
                "; events go on in the full file up to twice its size, and are dropped beyond it");
        if (moved) cannot_rotate_ = false;
        return moved.has_value();
    }

    /// The new file is opened before a kept one moves, so a failure costs no file.
    Result<void> move_files() {
        const auto next = beside("next");
        auto file = MUSTER_TRY(open_output_file(purpose, next, O_CREAT | O_APPEND));
        // One that somebody has moved away or removed leaves room as well.
        const auto move = [](const std::string& from, const std::string& to) -> Result<void> {
            if (std::rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return {};
            return error_from_errno(errno, cat("rename ", from));
        };
        // Only up to the first free number, so that a second attempt moves nothing twice.
        auto free = 1U;
        while (free + 1 < rotation_.file_count && ::access(beside(free).c_str(), F_OK) == 0) ++free;
        Result<void> moved;
        for (auto number = free; moved && number > 1; --number) moved = move(beside(number - 1), beside(number));
        if (moved && rotation_.file_count > 1) moved = move(path_, beside(1));
        if (moved) moved = move(next, path_);
        if (!moved) return moved;
        return use(std::move(file));
    }

    const std::string path_;
    const Rotation rotation_;
    std::string name_;
    FileDescriptor file_;
    bool is_regular_ = false;
    bool is_failing_ = false;
    bool cannot_rotate_ = false;  ///< It was logged.
    std::size_t size_ = 0;
    std::uint64_t lost_count_ = 0;
    std::atomic<std::uint64_t> dropped_sequence_ = 0;  ///< Also counted by the threads that call add().
};

EventFile::EventFile(std::shared_ptr<Target> target)
    : writer_({.write = [target](std::string_view text) { target->write(text); },
               .skipped = [target](std::uint64_t count) { return target->dropped_line(count, "the target is slow"); }},
              {.buffer_max_bytes = waiting_bytes_max, .patience = Duration::zero()}) {}

EventFile::~EventFile() {
    writer_.flush(last_flush_max);
}

Result<std::unique_ptr<EventFile>> EventFile::open(const std::string& path, Rotation rotation) {
    auto target = std::make_shared<Target>(path, rotation);
    if (auto opened = target->open(); !opened) return opened.error();
    return std::unique_ptr<EventFile>(new EventFile(std::move(target)));
}

Result<std::unique_ptr<EventFile>> EventFile::open_in(const std::string& directory, Rotation rotation) {
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
        return error_from_errno(errno, cat("create the directory of events ", directory));
    // A file of its own, because anybody who may read the directory could lock that.
    const auto name = cat(directory, "/lock");
    auto lock = open_locked(name, O_CREAT);
    if (!lock.valid() && errno == EWOULDBLOCK)
        return Error{Errc::invalid_argument,
                     cat("another musterd writes its events to ", directory, "; name a directory of its own")};
    // Not each file system has locks. Where there are none, nothing is lost without them.
    if (!lock.valid())
        log(LogLevel::warning, "cannot lock ", name, ": ", errno_text(errno),
            "; nothing keeps another musterd from writing its events there, too");
    auto file = open(cat(directory, "/events.jsonl"), rotation);
    if (file) (*file)->lock_ = std::move(lock);
    return file;
}

}  // namespace muster
