// The files for the workers' output.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "agent/output/log_index.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

/// The clock of the lines: nanoseconds since 1970, as this host has it.
std::int64_t log_time_ns();

/// One file, appended to. Writing waits for the disk: that is the back-pressure which keeps files complete. A disk that
/// is full costs the bytes that did not fit, and one log line that names the file; later bytes are tried again. Bytes
/// come from the output pump's thread, headings from its caller's.
class LogFile {
  public:
    LogFile(std::string path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
    void append(std::string_view bytes);
    /// Writes `heading` as a line of its own, unless it is empty or the last one written here: the streams of one round
    /// that share a file share its heading. With an owner the file gets an index (log_index.h), which is missing where
    /// the disk takes none.
    void begin_section(std::string_view heading, const std::optional<LogOwner>& owner);
    /// What comes from now on is of `owner`, without a heading: a worker that stays for another round may have begun a
    /// line. Never waits for the disk: the mark comes with the next bytes.
    void change_owner(const LogOwner& owner);
    /// True while a write goes on; for another thread.
    [[nodiscard]] bool is_writing() const { return is_writing_; }

  private:
    void write(std::string_view bytes);
    std::optional<LogOwner> take_next_owner();
    void mark(std::optional<LogOwner> owner, std::size_t heading_bytes = 0);

    std::string path_;
    FileDescriptor fd_;
    std::string heading_;
    FileDescriptor index_;
    std::uint64_t size_ = 0;         ///< Of the file; kept where there is an index.
    std::uint64_t marked_size_ = 0;  ///< When the last mark was made.
    std::optional<LogOwner> owner_;  ///< As the index names it.
    int unnamed_marks_ = 0;          ///< Since it was named.
    Instant marked_at_{};
    std::mutex mutex_;  ///< Headings come from another thread than bytes.
    std::mutex next_owner_mutex_;
    std::optional<LogOwner> next_owner_;  ///< Not marked yet.
    std::atomic<bool> told_ = false;
    std::atomic<bool> is_writing_ = false;
};

/// Opens files, one object for each path however many streams write to it. Not thread-safe.
class LogFiles {
  public:
    /// The file at `path`, made (with its directories) or opened for append, and its section begun with `heading`. A
    /// stream of the round before may still have it open. A null pointer and an errno where that cannot be.
    std::shared_ptr<LogFile> open(const std::string& path, std::string_view heading,
                                  const std::optional<LogOwner>& owner, int& error_number);

    /// The path of one that takes nothing, where the writing thread is known to wait; for the caller of open().
    [[nodiscard]] std::string hanging() const;

  private:
    std::map<std::string, std::weak_ptr<LogFile>> open_;
};

}  // namespace muster::agent
