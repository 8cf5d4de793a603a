// How an agent sends lines of its workers' log files to a viewer (muster logs JOB). Pure.
//
// Lines of text after an HTTP head; the words are as in the index (log_index.h):
//
//   clock 1764126000123456789                    first: this host's clock now
//   path 3 attempt_0/1/stdout.log                what file 3 is called, before its first line
//   file 3 round 7 rank 35 on gpu07              the lines of file 3 that follow are of this owner
//   line 3 at 1764126000124001122 to 81963 n 5   and a second line with so many bytes, which the file has up to there;
//                                                n ended it, r: it is a bar
//   cut 3 5120                                   file 3 was cut, now or long ago, and had so many bytes when that was
//                                                seen: a viewer that had read more has none of its lines
//   reached 1764126000200000000                  nothing older than this comes
//   alive                                        nothing to send just now: long files are searched for wanted lines
//   trouble TEXT                                 a sentence for the person
//   over                                         the round has ended: that was all of it, and what follows it comes at
//                                                another port. `end` is next
//   end                                          that was all
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "agent/output/log_reader.h"
#include "rendezvous/base/error.h"

namespace muster::agent {

struct LogClock {
    std::int64_t now_ns = 0;
};
struct SentLine {
    std::size_t file = 0;
    LogLine line;
};
struct LogReached {
    std::int64_t time_ns = 0;
};
struct LogAlive {};
struct LogTrouble {
    std::string text;
};
struct LogRoundOver {};
struct LogEnd {};
using LogMessage = std::variant<LogClock, SentLine, LogReached, LogAlive, LogTrouble, LogRoundOver, LogEnd>;

/// Of any but a SentLine, which LineWriter writes.
std::string to_wire(const LogMessage& message);

/// Writes lines; remembers which owners the viewer knows.
class LineWriter {
  public:
    /// `name` as LogMerge::name.
    void append(std::string& out, std::size_t file, const std::string& name, const LogLine& line);

  private:
    std::map<std::size_t, std::shared_ptr<const LogOwner>> owners_;
    std::map<std::size_t, std::uint64_t> cuts_;
};

/// Reads what is written above. The sender has proved its key, but is another host: sizes are limited.
class LogWireReader {
  public:
    static constexpr std::size_t line_bytes_max = 1 << 20;
    static constexpr std::size_t files_max = 2 * 4096;

    /// Drops the lines of each file up to there: the reader has them, and the sender does not know it.
    void drop_up_to(std::map<std::string, std::uint64_t> positions) { drops_ = std::move(positions); }
    void append(std::string_view bytes);
    /// Nothing: the next message has not come whole. Errors: bad_frame; the rest cannot be read.
    Result<std::optional<LogMessage>> next();
    /// Where each file would go on behind the lines that next() has given, by name.
    [[nodiscard]] const std::map<std::string, std::uint64_t>& positions() const { return positions_; }

  private:
    Result<std::optional<LogMessage>> read_line(std::string_view head, std::size_t head_bytes);
    /// False: the reader has that line.
    bool is_new(const SentLine& sent);
    Result<void> read_owner(std::string_view words);
    Result<void> read_path(std::string_view words);
    Result<void> read_cut(std::string_view words);
    void drop(std::size_t bytes) { from_ += bytes; }

    std::string bytes_;
    std::size_t from_ = 0;
    std::map<std::size_t, std::string> names_;
    std::map<std::string, std::uint64_t> positions_;
    std::map<std::string, std::uint64_t> drops_;  ///< Until a line of the file is new.
    std::map<std::size_t, std::uint64_t> ends_;   ///< Of the last line of each file, also where it was dropped.
    std::map<std::size_t, std::shared_ptr<const LogOwner>> owners_;
};

}  // namespace muster::agent
