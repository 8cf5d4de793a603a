// Reads one log file of a worker line by line, with the time and the owner of each.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/output/line_splitter.h"
#include "agent/output/log_index.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

struct LogLine {
    std::string text;
    std::int64_t time_ns = 0;  ///< 0: the file has no index.
    std::shared_ptr<const LogOwner> owner;
    bool is_bar = false;                       ///< It ended with '\r': the state of a progress bar.
    std::optional<std::uint64_t> cut_bytes{};  ///< LogReader::was_cut: the file's size when that was seen.
    std::uint64_t end = 0;                     ///< Its file goes on there: LogReader::resume_at.
};

/// A file that grows may be read on: next() after it returned false. Files without an index, such as torchrun's, are of
/// the owner that is given.
class LogReader {
  public:
    static Result<LogReader> open(const std::string& path, LogOwner owner);

    // One of the next four, before the first line is read. Their time does not grow with the file, but for the lines of
    // skip_to_last and a line that skip_to_round finds begun.
    /// Passes over what is older, as far as the index tells.
    void skip_to(std::int64_t time_ns);
    /// Passes over the output of earlier rounds, as far as the index tells.
    void skip_to_round(std::uint64_t round);
    /// Passes over what is more than so many lines before the end, or more than last_bytes_max. `alive` is called now
    /// and then, because that may be many bytes.
    void skip_to_last(std::size_t lines, const std::function<void()>& alive);
    static constexpr std::uint64_t last_bytes_max = 64 << 20;
    /// Begins behind a line whose `end` that is.
    void resume_at(std::uint64_t offset);
    /// The next line. False at the end of the file; a beginning of a line there waits for its rest.
    Result<bool> next(LogLine& line);
    /// That beginning, as a line of its own.
    bool take_rest(LogLine& line);
    /// Whose output comes next, as far as the index tells. Null: it has not told yet, or there is none.
    [[nodiscard]] std::shared_ptr<const LogOwner> owner() const { return time_ns_ == 0 ? nullptr : owner_; }
    /// The file was cut (logrotate's copytruncate): it is read from its beginning. Its index tells of another file, so
    /// the lines have the time of the last write, and the last owner.
    [[nodiscard]] bool was_cut() const { return cut_bytes_.has_value(); }

  private:
    LogReader(FileDescriptor file, std::string index_path, LogOwner owner);
    void read_index();
    [[nodiscard]] Result<bool> fill();
    void begin_again(std::uint64_t file_bytes, std::int64_t time_ns);
    void fill_in(LogLine& line, std::string_view text) const;
    /// Where the line begins of which there is a part before `offset`; `offset` if there is none.
    [[nodiscard]] std::uint64_t line_begin(std::uint64_t offset) const;
    /// Goes on at the first mark for which this does not hold.
    void pass_while(const std::function<bool(const LogMark&)>& is_before);
    void pass_marks();
    void pass_mark();

    FileDescriptor file_;
    std::string index_path_;
    FileDescriptor index_;
    std::uint64_t index_position_ = 0;
    std::string index_rest_;     ///< Beginning of a line of the index.
    std::deque<LogMark> marks_;  ///< Those from `position_` on.
    std::uint64_t position_ = 0;
    std::uint64_t seen_end_ = 0;  ///< The file has had so many bytes for sure.
    std::uint64_t marked_ = 0;    ///< So many before the newest mark that was passed.
    std::int64_t time_ns_ = 0;
    std::shared_ptr<const LogOwner> owner_;
    std::optional<std::uint64_t> cut_bytes_;  ///< The file was cut, and had so many bytes when that was seen.
    std::string chunk_;
    LineSplitter splitter_;
};

/// The last round that the index at `path` names; 0 if there is none.
std::uint64_t last_round(const std::string& path);

}  // namespace muster::agent
