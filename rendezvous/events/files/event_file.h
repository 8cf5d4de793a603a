// Writes events to a file, or to the files of a directory. The caller never waits for the disk: a thread writes, and
// lines that a full or slow target does not take are dropped and counted by an events_dropped record.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/console_writer.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster {

class EventFile {
  public:
    struct Rotation {
        std::size_t file_bytes_max;  ///< 0: one file, which grows.
        unsigned file_count;
    };
    /// Of musterd --events.
    static constexpr Rotation daemon_rotation{.file_bytes_max = std::size_t{64} << 20, .file_count = 4};
    /// Events that wait for the disk.
    static constexpr std::size_t waiting_bytes_max = std::size_t{4} << 20;

    /// Appends to `path`: a file, a device or a pipe with a reader. A new file is readable by this user only, because
    /// events contain names of hosts and error texts. Errors: it cannot be opened.
    static Result<std::unique_ptr<EventFile>> open(const std::string& path) { return open(path, Rotation{0, 1}); }
    /// In a directory, which is created: events.jsonl, and events.1.jsonl and so on for the older ones. A process has
    /// it by a lock on its file `lock`. Errors: also that another process has it.
    static Result<std::unique_ptr<EventFile>> open_in(const std::string& directory, Rotation rotation);
    /// Waits up to 5 s for the thread.
    ~EventFile();
    EventFile& operator=(EventFile&&) = delete;

    /// One whole line. Thread-safe.
    void add(std::string_view line) { writer_.add(line); }
    /// True when everything has been written (or dropped) before `limit`.
    bool flush(Duration limit) { return writer_.flush(limit); }

  private:
    class Target;
    static Result<std::unique_ptr<EventFile>> open(const std::string& path, Rotation rotation);
    explicit EventFile(std::shared_ptr<Target> target);
    FileDescriptor lock_;  ///< Of the directory.
    ConsoleWriter writer_;
};

}  // namespace muster
