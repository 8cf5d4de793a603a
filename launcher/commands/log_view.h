// The log files of many workers as one stream of lines, in order of time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "agent/output/line_fold.h"
#include "agent/output/log_reader.h"
#include "launcher/commands/failed_ranks.h"

namespace muster::launcher {

struct LogRequest {
    std::vector<std::string> folders;
    std::optional<std::set<std::uint32_t>> ranks;
    std::optional<FailedRanks> failed;  ///< Only these, in their rounds.
    bool out = true;
    bool err = true;
    std::optional<std::uint64_t> round;
    bool last_round = false;
    std::optional<Duration> since;
    std::vector<std::regex> include;  ///< A line that matches none of them is left out.
    std::vector<std::regex> exclude;
    std::optional<std::size_t> last;  ///< The caller shows so many lines of the first read at most.
    bool follow = false;
    bool fold = true;
    bool times = false;
};

/// Lines of one chunk of a worker's output stay together, and those of one file keep their order. Between files the
/// order is that of the hosts' clocks, to 10 ms. Files without an index come first, one after the other.
class LogView {
  public:
    explicit LogView(LogRequest request, std::int64_t now_ns);

    /// Opens the files that have come since the last call. The error names one that cannot be read.
    Result<void> find();
    [[nodiscard]] std::size_t file_count() const { return sources_.size(); }
    /// Takes whole lines; false where nobody wants more.
    using Sink = std::function<bool(std::string_view lines)>;
    /// Gives `sink` the lines that can be shown by now. False once it has refused.
    Result<bool> read(std::int64_t now_ns, const Sink& sink);
    /// What is held back to be folded, and the beginnings of lines at the ends of files.
    void finish(const Sink& sink);

  private:
    struct Source {
        agent::LogReader reader;
        std::optional<agent::LogLine> line;
        /// Of `line`'s owner in the fold.
        std::optional<agent::LineFold::SourceId> folded;
        std::shared_ptr<const agent::LogOwner> folded_owner;
    };

    Result<void> open(const std::string& path);
    void choose_last_round();
    [[nodiscard]] bool wanted(const agent::LogLine& line) const;
    Result<void> advance(Source& source);
    void show(Source& source);
    bool give(const Sink& sink);
    void show_folded(Source& source, Instant time);

    LogRequest request_;
    std::int64_t since_ns_ = 0;
    std::map<std::string, Source> sources_;  ///< By path.
    std::set<std::uint32_t> ranks_;          ///< Of all files.
    agent::LineFold fold_;
    std::string text_;
};

}  // namespace muster::launcher
