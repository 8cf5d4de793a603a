// Folds lines that many ranks print alike into one, with the ranks that printed it. Pure.
//
//   [0]: loading the tokenizer
//     [same from all 32 ranks of this node]
//   [5]: warning: slow disk
//     [same from ranks 6-7,12; 4 in all]
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/time.h"

namespace muster::agent {

/// A line is shown when the first rank prints it. Who else printed it is said as soon as all ranks have, or when it has
/// not come again for `quiet`, or `window` after the first one. A rank that repeats its own line is counted, never
/// hidden: the count is said with the ranks. A Python traceback is one unit, and two of them are alike if they differ
/// in numbers only. Of a progress bar the last state is shown.
class LineFold {
  public:
    struct Limits {
        Duration quiet = 1s;
        Duration window = 5s;
        /// A traceback that has not ended after this time is shown as far as it came.
        Duration block_wait = 200ms;
        std::string_view ranks = "ranks of this node";  ///< All that there are.
        std::size_t open_max = 1024;          ///< Lines whose ranks are still awaited; beyond it the oldest are told.
        std::size_t line_max_bytes = 4096;    ///< A longer line is shown whole and not compared.
        std::size_t block_max_bytes = 65536;  ///< A longer traceback is cut into units.
    };
    enum class Ending { newline, carriage_return };
    using SourceId = std::uint64_t;

    LineFold() : LineFold(Limits()) {}
    explicit LineFold(Limits limits) : limits_(limits) {}

    /// One stream of the worker `rank`, one of `among`; `prefix` comes before each of its lines that is shown.
    SourceId open(std::uint32_t rank, std::uint32_t among, std::string prefix);
    /// The stream has ended: what is held of it is shown.
    void close(SourceId id, Instant now);

    void add(SourceId id, std::string_view line, Ending ending, Instant now);
    /// The carriage return that ended the last line was the first half of "\r\n".
    void end_bar(SourceId id, Instant now);

    /// What time alone decides.
    void show_due(Instant now);
    /// Says all that is held, as at the launcher's end.
    void show_all(Instant now);
    /// When show_due() has something to do; no_deadline if never.
    [[nodiscard]] Instant due() const;
    /// The text for the console since the last call: whole lines.
    [[nodiscard]] std::string take() { return std::exchange(text_, {}); }
    [[nodiscard]] std::size_t size() const { return text_.size(); }  ///< Of that text.

  private:
    struct Source {
        std::uint32_t rank = 0;
        std::string prefix;
        std::string block;  ///< The lines of a traceback so far, each with its end.
        Instant block_due = no_deadline;
        std::string bar;  ///< A progress bar's last state.
        Instant bar_since = no_deadline;
        Instant bar_due = no_deadline;
    };
    struct Group {
        std::string key;   ///< What makes two units alike.
        std::string text;  ///< As the first rank printed it.
        bool exact = true;
        std::uint32_t first_rank = 0;
        std::set<std::uint32_t> ranks;
        std::uint64_t repeats = 0;  ///< By ranks that had printed it before.
        Instant since;
        Instant last;
    };
    using Groups = std::list<Group>;  // in order of `since`

    void take_line(Source& source, std::string_view line, Instant now);
    void end_block(Source& source, Instant now);
    void show_bar(Source& source, Instant now);
    void fold(const Source& source, std::string_view text, std::string key, Instant now);
    void show(const Source& source, std::string_view text);
    void tell(Groups::iterator group);
    [[nodiscard]] std::string who(const Group& group) const;
    [[nodiscard]] Instant due(const Group& group) const;

    Limits limits_;
    std::map<SourceId, Source> sources_;
    std::map<std::uint32_t, std::size_t> expected_;  ///< Ranks with open streams, and how many.
    std::size_t among_ = 0;                          ///< Ranks of this node, also those that have not started yet.
    SourceId next_id_ = 1;
    Groups groups_;
    std::map<std::string_view, Groups::iterator> by_key_;  ///< The keys are the groups' own.
    Instant next_due_ = no_deadline;                       ///< Nothing is due before it; due() may be later.
    const Group* last_shown_ = nullptr;                    ///< The group whose line is the last text on the console.
    std::string text_;
};

}  // namespace muster::agent
