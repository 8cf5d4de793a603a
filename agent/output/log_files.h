// The files for the workers' output.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

/// One file, appended to. Writing waits for the disk: that is the back-pressure which keeps files complete. A disk that
/// is full costs the bytes that did not fit, and one log line that names the file; later bytes are tried again. Bytes
/// come from the output pump's thread, headings from its caller's.
class LogFile {
  public:
    LogFile(std::string path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
    void append(std::string_view bytes);
    /// Writes `heading` as a line of its own, unless it is empty or the last one written here: the streams of one round
    /// that share a file share its heading.
    void begin_section(std::string_view heading);
    /// True while a write goes on; for another thread.
    [[nodiscard]] bool is_writing() const { return is_writing_; }

  private:
    std::string path_;
    FileDescriptor fd_;
    std::string heading_;
    std::atomic<bool> told_ = false;
    std::atomic<bool> is_writing_ = false;
};

/// Opens files, one object for each path however many streams write to it. Not thread-safe.
class LogFiles {
  public:
    /// The file at `path`, made (with its directories) or opened for append, and its section begun with `heading`. A
    /// stream of the round before may still have it open. A null pointer and an errno where that cannot be.
    std::shared_ptr<LogFile> open(const std::string& path, std::string_view heading, int& error_number);

    /// The path of one that takes nothing, where the writing thread is known to wait; for the caller of open().
    [[nodiscard]] std::string hanging() const;

  private:
    std::map<std::string, std::weak_ptr<LogFile>> open_;
};

}  // namespace muster::agent
