// The log files of many workers as one stream of lines, in order of time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/log_merge.h"
#include "launcher/commands/failed_ranks.h"
#include "launcher/commands/log_show.h"

namespace muster::launcher {

struct LogRequest {
    std::vector<std::string> folders;
    std::optional<std::set<std::uint32_t>> ranks;
    std::set<std::string> nodes{};      ///< Only of these, by is_of_nodes. Empty: of all.
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
    std::string job{};                              ///< Of an agent: it refuses the question for another one.
    std::map<std::string, std::uint64_t> resume{};  ///< Of an agent's files: where a viewer goes on (log_merge.h).
    bool untimed = false;                           ///< With `since`: also lines of files without an index.
    std::optional<Duration> unread{};               ///< With `resume`: no line that the viewer lacks is older.
    bool fold = true;
    bool times = false;
};

/// Lines of one chunk of a worker's output stay together, and those of one file keep their order. Between files the
/// order is that of the hosts' clocks, to 10 ms (agent/output/log_merge.h).
class LogView {
  public:
    explicit LogView(const LogRequest& request, std::int64_t now_ns);

    /// Opens the files that have come since the last call. The error names one that cannot be read.
    Result<void> find() { return merge_.find(); }
    [[nodiscard]] std::size_t file_count() const { return merge_.file_count(); }
    /// Takes whole lines; false where nobody wants more.
    using Sink = LogShow::Sink;
    /// Gives `sink` the lines that can be shown by now. False once it has refused.
    Result<bool> read(std::int64_t now_ns, const Sink& sink);
    /// What is held back to be folded, and the beginnings of lines at the ends of files.
    void finish(const Sink& sink);

  private:
    const bool follow_;
    agent::LogMerge merge_;
    LogShow show_;
};

/// A host has the name of a node in full, or up to a dot ("gpu07" of "gpu07.example.org"). True without names.
bool is_of_nodes(std::string_view host, const std::set<std::string>& nodes);
/// What --node, --failed, --failed-in, --include and --exclude ask of a line.
std::function<bool(const agent::LogLine& line)> line_filter(const LogRequest& request);
LogShow::Form form_of(const LogRequest& request);

}  // namespace muster::launcher
