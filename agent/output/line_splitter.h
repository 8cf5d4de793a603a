// Splits a stream of bytes into lines, across chunks. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace muster::agent {

/// '\n', '\r' and "\r\n" each end a line, so that a progress bar's states are lines of their own; an empty line that
/// '\r' ended is left out (a bar writes its '\r' first). A line longer than `line_max_bytes` comes out in pieces of
/// that size.
///
/// Use: add() a chunk, then next() until it returns false; the views given out live until the next call.
class LineSplitter {
  public:
    explicit LineSplitter(std::size_t line_max_bytes = 1 << 20) : line_max_bytes_(line_max_bytes) {}

    /// `chunk` must stay alive until next() has returned false.
    void add(std::string_view chunk);
    /// A '\n' that comes first ends a line that was read before, and is no line of its own. Before the first chunk.
    void begin_behind_line() { after_return_ = true; }
    /// The next whole line, without its end.
    bool next(std::string_view& line);

    /// The last line ended with '\r', as each state of a progress bar does. Where that stood at the end of a chunk,
    /// the next one may begin with the '\n' of an "\r\n".
    [[nodiscard]] bool ended_with_return() const { return after_return_ && !rest_.starts_with('\n'); }
    /// Bytes of the chunk behind the last line.
    [[nodiscard]] std::size_t unread_bytes() const { return rest_.size(); }
    /// Part of a line is waiting for its rest.
    [[nodiscard]] bool holds_partial() const { return !partial_.empty(); }
    /// That part, as a line of its own: what follows will be another one. Empty if there is none.
    [[nodiscard]] std::string take_partial() { return std::exchange(partial_, {}); }

  private:
    std::string_view end_line(std::size_t size);

    std::size_t line_max_bytes_;
    std::string_view rest_;  ///< Unread part of the chunk.
    /// Position of the next '\r' in rest_, or its size. Searched once per '\r', not once per line.
    std::size_t next_return_ = 0;
    std::string partial_;        ///< Beginning of a line from earlier chunks.
    std::string whole_;          ///< Holds the last view if it was joined from two chunks.
    bool after_return_ = false;  ///< True if the last line ended with '\r': a '\n' that follows belongs to it.
};

}  // namespace muster::agent
