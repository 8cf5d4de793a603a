// One output stream of one worker and its destinations.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "agent/output/line_fold.h"
#include "agent/output/line_splitter.h"
#include "agent/output/log_files.h"
#include "agent/output/tail_buffer.h"
#include "agent/supervision/process_host.h"
#include "rendezvous/base/console_writer.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

/// Gives each chunk to the file first (complete, at the disk's pace), then to the tail, then to the console. Bytes go
/// to the console as they come, unless there is a prefix or a filter: then whole lines do.
///
/// Used by the pump's thread alone, except take_tail() and change_owner().
class OutputStream {
  public:
    struct Parts {
        StreamPlan plan;
        FileDescriptor source;  ///< Non-blocking.
        bool terminal = false;  ///< True if the source is a pty.
        std::shared_ptr<LogFile> file;
        std::shared_ptr<LogFile> filtered_file;
        ConsoleWriter* console = nullptr;  ///< Null: not printed.
        LineFold* fold = nullptr;          ///< Of that console, where the plan folds. Outlives this.
    };
    explicit OutputStream(Parts parts) : parts_(std::move(parts)) {}

    /// Before the first read.
    void begin();
    enum class Read { some, nothing_now, ended };
    /// Takes what is there, at most `buffer.size()` bytes, and hands it on.
    Read read(std::string& buffer);
    /// The same for the rest of what the pipe holds at this moment; true if that surely was all of an ended worker's
    /// own output.
    bool drain(std::string& buffer);

    /// When the beginning of a line that waits for its end is to be shown; no_deadline if there is none.
    [[nodiscard]] Instant partial_deadline() const { return partial_deadline_; }
    void show_partial();

    [[nodiscard]] std::string take_tail();
    void change_owner(const LogOwner& owner) const {
        if (parts_.file) parts_.file->change_owner(owner);
    }
    [[nodiscard]] int source() const { return parts_.source.get(); }

  private:
    void pass(std::string_view bytes);
    void split(std::string_view bytes);
    void show(std::string_view line);
    void fold(std::string_view line);
    void send_batches();
    [[nodiscard]] bool by_line() const {
        return !parts_.plan.prefix.empty() || parts_.filtered_file != nullptr || !parts_.plan.journal_fields.empty() ||
               parts_.fold != nullptr;
    }

    Parts parts_;
    LineSplitter splitter_;
    std::optional<LineFold::SourceId> folded_;
    Instant partial_deadline_ = no_deadline;
    std::string console_batch_;
    std::string filtered_batch_;
    std::mutex tail_mutex_;
    TailBuffer tail_;
};

}  // namespace muster::agent
