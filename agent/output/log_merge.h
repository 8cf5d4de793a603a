// The log files below some folders as one sequence of lines.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/output/log_reader.h"
#include "rendezvous/base/error.h"

namespace muster::agent {

struct LogSelection {
    std::vector<std::string> folders{};
    std::optional<std::set<std::uint32_t>> ranks{};
    bool out = true;
    bool err = true;
    std::optional<std::uint64_t> round{};
    bool last_round = false;    ///< Of all files; looked for at each find() until one is known.
    std::int64_t since_ns = 0;  ///< Older lines are left out.
    bool untimed = false;       ///< Not those of files without an index.
    /// Where to go on in files that were read before: LogLine::end by LogMerge::name.
    std::map<std::string, std::uint64_t> resume{};
    /// Files that the first find() opens are read from so many lines before their end, if nothing else is asked for.
    std::optional<std::size_t> last{};
    std::function<bool(const LogLine& line)> wanted{};  ///< More to ask of a line. Empty: nothing.
    /// Asked before each file is opened, by LogMerge::name. An error: it is not opened now.
    std::function<Result<void>(const std::string& name)> may_open{};
    /// A file that cannot be read is left out and said here, each sentence once. Empty: find() and read() fail with it.
    std::function<void(const std::string& sentence)> trouble{};
    std::function<void()>
        passed_over{};  ///< Called for each line that is left out, because there may be millions, or a piece of such.
};

/// Lines of one chunk of a worker's output stay together, and those of one file keep their order. Between files the
/// order is that of the index, to 10 ms. Files without an index come first, one after the other.
class LogMerge {
  public:
    explicit LogMerge(LogSelection selection) : selection_(std::move(selection)) {}

    /// Opens the files that have come since the last call. The error names one that cannot be read.
    Result<void> find();
    [[nodiscard]] std::size_t file_count() const { return sources_.size(); }
    /// Of a file, its path below its folder.
    [[nodiscard]] const std::string& name(std::size_t file) const { return names_[file]; }
    /// The ranks of all files that had a line by the last read, or whose index says that one of theirs may come
    /// in the last round.
    [[nodiscard]] const std::set<std::uint32_t>& ranks() const { return ranks_; }

    /// `file` is a number below file_count(). False: nobody wants more.
    using Sink = std::function<bool(std::size_t file, LogLine&& line)>;
    /// A line that is older than this is in its file: its time is taken before it is written.
    static constexpr std::int64_t write_lag_ns = 100'000'000;
    /// Gives `sink` what can be read by now, the oldest first. False once it has refused; the lines behind the refused
    /// one come with the next call. So do those that are newer than `until_ns`: files that grow are read one after the
    /// other, and an older line may just have been missed. No line is held back twice, whatever its host's clock says,
    /// and none behind one that is too new also then.
    Result<bool> read(const Sink& sink, std::int64_t until_ns = std::numeric_limits<std::int64_t>::max());
    /// The workers of these files run on: finish() leaves the beginnings of their lines. By path.
    void run_on(const std::vector<std::string>& paths) { running_.insert(paths.begin(), paths.end()); }
    /// The beginnings of lines at the ends of files, as lines.
    void finish(const Sink& sink);

  private:
    struct Source {
        LogReader reader;
        std::size_t number;
        std::optional<LogLine> line{};
        bool is_held = false;     ///< The line is that of the last read.
        bool holds_none = false;  ///< In this read.
    };

    Result<void> open(const std::string& path, std::string name);
    /// What is done about a file that cannot be read.
    Result<void> leave_out(const Error& why);
    /// To selection_.trouble, once.
    void say(const std::string& sentence);
    void choose_last_round();
    void note_ranks();
    [[nodiscard]] bool wants(const LogLine& line) const;
    Result<void> advance(Source& source);

    LogSelection selection_;
    std::map<std::string, Source> sources_;  ///< By path.
    std::vector<std::string> names_;
    std::set<std::uint32_t> ranks_;
    std::set<std::string> said_;
    std::set<std::string> running_;
};

}  // namespace muster::agent
